import { DemoError } from './request.ts'

/** Maximum number of values in an example. A schema that needs more values is refused. */
const EXAMPLE_VALUES_MAX = 10_000
/** Maximum number of characters in all texts of one example. */
const EXAMPLE_CHARACTERS_MAX = 100_000
const EXAMPLE_DEPTH_MAX = 64

export type Schema = Readonly<Record<string, unknown>>
type Search = {
  readonly root: Schema
  readonly depth: number
  /** Numbers of values and characters that the example may still add. */
  readonly budget: { values: number; characters: number }
}

/**
 * The schema's smallest example: only the required members, and the fewest items. Of several
 * alternatives, uses the first that has an example. Understands type, const, enum, properties,
 * required, items, prefixItems, anyOf, oneOf, allOf, $ref within the schema, and the bounds of
 * strings, numbers and arrays, but not `pattern`. Throws DemoError when no example is within the
 * limits above.
 */
export function exampleOf(schema: Schema): unknown {
  const budget = { values: EXAMPLE_VALUES_MAX, characters: EXAMPLE_CHARACTERS_MAX }
  return build(schema, { root: schema, depth: 0, budget })
}

function noExample(): DemoError {
  const counts = `at most ${EXAMPLE_VALUES_MAX} values and ${EXAMPLE_CHARACTERS_MAX} characters`
  return new DemoError(400, `The schema has no example of ${counts}, ${EXAMPLE_DEPTH_MAX} deep.`, {
    param: 'schema',
  })
}

function build(schema: unknown, { root, depth, budget }: Search): unknown {
  budget.values -= 1
  if (depth > EXAMPLE_DEPTH_MAX || budget.values < 0 || schema === false) throw noExample()
  if (!isSchema(schema)) return {}
  const deeper = { root, depth: depth + 1, budget }
  if ('const' in schema) return spend(schema.const, budget)
  if (Array.isArray(schema.enum)) {
    if (schema.enum.length === 0) throw noExample()
    return spend(schema.enum[0], budget)
  }
  if (typeof schema.$ref === 'string') return build(resolve(schema.$ref, root), deeper)
  if (Array.isArray(schema.allOf)) return build(mergeAll(schema, schema.allOf), deeper)
  const alternatives = schema.anyOf ?? schema.oneOf
  return Array.isArray(alternatives) ? buildFirst(alternatives, deeper) : buildType(schema, deeper)
}

function spend(value: unknown, budget: Search['budget']): unknown {
  budget.characters -= JSON.stringify(value)?.length ?? 0
  if (budget.characters < 0) throw noExample()
  return value
}

function buildFirst(alternatives: readonly unknown[], search: Search): unknown {
  for (const alternative of alternatives) {
    if (search.budget.values < 0) break
    try {
      return build(alternative, search)
    } catch (fault) {
      if (!(fault instanceof DemoError)) throw fault
    }
  }
  throw noExample()
}

function buildType(schema: Schema, search: Search): unknown {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type
  switch (type ?? (schema.items === undefined ? 'object' : 'array')) {
    case 'string':
      return spend(exampleText(schema), search.budget)
    case 'integer':
      return exampleNumber(schema, 1)
    case 'number':
      return exampleNumber(schema, 0)
    case 'boolean':
      return true
    case 'null':
      return null
    case 'array':
      return exampleArray(schema, search)
    default:
      return exampleObject(schema, search)
  }
}

function exampleObject({ properties, required }: Schema, search: Search): unknown {
  const known = isSchema(properties) ? properties : {}
  const names = new Set(Array.isArray(required) ? required.map(String) : [])
  const memberOf = (name: string) =>
    [
      spend(name, search.budget),
      build(Object.hasOwn(known, name) ? known[name] : {}, search),
    ] as const
  return Object.fromEntries(Array.from(names, memberOf))
}

function exampleArray({ prefixItems, items, minItems }: Schema, search: Search): unknown {
  const prefix: readonly unknown[] = Array.isArray(prefixItems) ? prefixItems : []
  const example: unknown[] = []
  for (let index = 0; index < boundOf(minItems, 0); index++)
    example.push(build(prefix[index] ?? items ?? {}, search))
  return example
}

const FORMATS: Readonly<Record<string, string>> = {
  'date-time': '2000-01-01T00:00:00Z',
  date: '2000-01-01',
  time: '00:00:00Z',
  duration: 'PT0S',
  email: 'demonstration@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  uri: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000',
}

function exampleText({ format, minLength, maxLength }: Schema): unknown {
  const formatted = typeof format === 'string' ? FORMATS[format] : undefined
  if (formatted !== undefined) return formatted
  const shortest = boundOf(minLength, 0)
  if (shortest > EXAMPLE_VALUES_MAX) throw noExample()
  return 'demonstration'.slice(0, boundOf(maxLength, 13)).padEnd(shortest, '.')
}

/** Zero if the bounds allow it, else an allowed number near one of the bounds. */
function exampleNumber(schema: Schema, step: number): unknown {
  const least = boundOf(schema.minimum, Number.NEGATIVE_INFINITY)
  const above = boundOf(schema.exclusiveMinimum, Number.NEGATIVE_INFINITY)
  const most = boundOf(schema.maximum, Number.POSITIVE_INFINITY)
  const below = boundOf(schema.exclusiveMaximum, Number.POSITIVE_INFINITY)
  const multiple = boundOf(schema.multipleOf, step)
  const nearest = (bound: number) =>
    multiple > 0
      ? [0, 1, -1].map((steps) => (Math.round(bound / multiple) + steps) * multiple)
      : [bound, bound + 1, bound - 1, (bound + Math.min(most, below)) / 2]
  const found = [0, least, above, most, below]
    .filter(Number.isFinite)
    .flatMap(nearest)
    .find((value) => value >= least && value > above && value <= most && value < below)
  if (found === undefined) throw noExample()
  return found
}

function mergeAll(schema: Schema, allOf: readonly unknown[]): Schema {
  const { allOf: _, ...rest } = schema
  const parts = [rest, ...allOf].filter(isSchema)
  const properties = Object.assign({}, ...parts.map((part) => part.properties))
  const required = parts.flatMap((part) => (Array.isArray(part.required) ? part.required : []))
  return { ...Object.assign({}, ...parts), properties, required }
}

function resolve(reference: string, root: Schema): unknown {
  if (!reference.startsWith('#')) return {}
  let found: unknown = root
  for (const step of reference.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~')
    found = isSchema(found) && Object.hasOwn(found, name) ? found[name] : undefined
  }
  return found ?? false
}

function boundOf(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
