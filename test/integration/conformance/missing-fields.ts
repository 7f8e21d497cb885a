/**
 * The members that a reply has by the interface, and their types. `[]` means each item of an array.
 */
export type ReplyFields = Readonly<Record<string, string>>

/**
 * The members of `fields` that a reply lacks, or has with another type. An array that needs items
 * has at least one.
 */
export function missingFields(reply: unknown, fields: ReplyFields): readonly string[] {
  return Object.entries(fields).flatMap(([field, types]) => {
    const found = valuesAt(reply, field.split('.'))
    if (found.length === 0) return [`${field}: nothing there`]
    const wrong = found.filter((value) => !types.split(' or ').includes(typeOf(value, types)))
    return wrong.length > 0 ? [`${field}: ${JSON.stringify(wrong[0])} is not ${types}`] : []
  })
}

function valuesAt(value: unknown, [step, ...rest]: readonly string[]): readonly unknown[] {
  if (step === undefined) return [value]
  const name = step.replace('[]', '')
  const member = typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
  if (!step.endsWith('[]')) return valuesAt(member, rest)
  return Array.isArray(member) ? member.flatMap((item) => valuesAt(item, rest)) : []
}

function typeOf(value: unknown, types: string): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  return Number.isInteger(value) && types.includes('integer') ? 'integer' : typeof value
}
