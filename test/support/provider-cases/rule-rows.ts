/** The rows of a page of rules: number, check, and codes in the last column. */
export function listRuleRows(page: string) {
  const rows = page.matchAll(/^\| +(\d+) \| ([^|]+?) +\| .* \| (.*?) +\|$/gm)
  return [...rows].map(([, rule, check, codes = '']) => ({
    rule: Number(rule),
    check,
    codes: [...(codes.match(/\w+/g) ?? [])],
  }))
}
