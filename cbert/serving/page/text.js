export function makeText() {}
