"""The page's style: light and dark, phone, desk and paper."""

STYLESHEET = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #22272e; --soft: #5a636e; --line: #d5dae0; --strong: #22272e;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #171717; --ink: #e2e4e7; --soft: #a0a7b0; --line: #383c42; --strong: #8b929b;
  }
  /* White becomes the dark paper, and colours keep their hue. */
  img { filter: invert(0.91) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 "Charter", "Bitstream Charter", "Georgia", serif;
  -webkit-text-size-adjust: 100%; text-size-adjust: 100%;
}
main { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1, h2 { line-height: 1.25; font-weight: 600; overflow-wrap: anywhere; text-wrap: balance; }
h1 { font-size: 1.75rem; margin: 0 0 1.5rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 0.75rem; }
p, ul { max-width: 42rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
ul { padding-left: 1.25rem; }
figure { margin: 1.5rem 0; }
figcaption { color: var(--soft); font-size: 0.875rem; max-width: 42rem; line-height: 1.45; }
figure.table figcaption { margin-bottom: 0.6rem; }
figure:not(.table) figcaption { margin-top: 0.4rem; overflow-wrap: anywhere; }
img { display: block; width: 100%; max-width: 34rem; height: auto; }
.several { display: grid; gap: 0.5rem 2.5rem; grid-template-columns: 1fr; }
.scroll { overflow-x: auto; }
table {
  border-collapse: collapse; font: 0.85rem/1.4 system-ui, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums lining-nums;
  border-top: 1.5px solid var(--strong); border-bottom: 1.5px solid var(--strong);
}
th, td { padding: 0.3rem 0.6rem; text-align: right; font-weight: 400; white-space: nowrap; }
.word { text-align: left; }
thead th {
  border-bottom: 1px solid var(--strong); color: var(--soft); vertical-align: bottom;
  white-space: normal; line-height: 1.25;
}
tr.rule > * { border-top: 1px solid var(--line); }
th:first-child { position: sticky; left: 0; background: var(--paper); padding-left: 0; }
tbody th { max-width: 20rem; white-space: normal; overflow-wrap: break-word; }
td:last-child, thead th:last-child { padding-right: 0; }
.error {
  display: inline-block; margin-left: 0.3em; text-align: left; color: var(--soft);
}
@media (min-width: 56rem) { .several { grid-template-columns: 1fr 1fr; align-items: start; } }
@media (max-width: 30rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.45rem; }
  th, td { padding: 0.32rem 0.5rem; }
  th:first-child { min-width: 6rem; max-width: 9.5rem; }
}
@media print {
  @page { margin: 16mm 14mm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.5rem; }
  tr, figure:not(.table) { break-inside: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.2rem 0.35rem; }
  .several { grid-template-columns: 1fr 1fr; }
  img { max-width: 12cm; }
}
"""
