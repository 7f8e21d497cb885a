/** The rows of a page whose rules have numbers: number, check, and the codes of the last column. */
export function listNumberedRules(page: string) {
  const rows = page.matchAll(/^\| +(\d+) \| ([^|]+?) +\| .* \| (.*?) +\|$/gm)
  return [...rows].map(([, rule, check, codes = '']) => ({
    rule: Number(rule),
    check,
    codes: [...(codes.match(/\w+/g) ?? [])],
  }))
}
