import { DemoError } from './request.ts'

/** Most values that one example may have; a schema that needs more is refused. */
const EXAMPLE_VALUES_MAX = 10_000
/** Deepest nesting of an example. */
const EXAMPLE_DEPTH_MAX = 64

type Schema = Readonly<Record<string, unknown>>
type Search = { readonly root: Schema; readonly depth: number; readonly budget: { values: number } }

/**
 * Gives a small JSON value that fits a JSON Schema: required members only, fewest items, first of
 * the alternatives that has an example. Understands type, const, enum, properties, required, items,
 * prefixItems, anyOf, oneOf, allOf, $ref within the schema, and the bounds of strings, numbers and
 * arrays; not `pattern`. Throws a DemoError (400) when there is no finite example within the limits
 * above.
 */
export function exampleOf(schema: Schema): unknown {
  const example = build(schema, { root: schema, depth: 0, budget: { values: EXAMPLE_VALUES_MAX } })
  if (example !== NONE) return example
  const limits = `at most ${EXAMPLE_VALUES_MAX} values, ${EXAMPLE_DEPTH_MAX} deep`
  throw new DemoError(400, `The schema has no example of ${limits}.`, { param: 'schema' })
}

/** No example within the limits. A symbol, because null and undefined could be meant. */
const NONE = Symbol('no example')

function build(schema: unknown, search: Search): unknown {
  search.budget.values -= 1
  if (search.depth > EXAMPLE_DEPTH_MAX || search.budget.values < 0 || schema === false) return NONE
  if (!isSchema(schema)) return {}
  const deeper = { ...search, depth: search.depth + 1 }
  if ('const' in schema) return schema.const
  if (Array.isArray(schema.enum)) return schema.enum.length > 0 ? schema.enum[0] : NONE
  if (typeof schema.$ref === 'string') return build(resolve(schema.$ref, search.root), deeper)
  if (Array.isArray(schema.allOf)) return build(mergeAll(schema), deeper)
  for (const alternatives of [schema.anyOf, schema.oneOf])
    if (Array.isArray(alternatives)) return buildFirst(alternatives, deeper)
  return buildType(schema, deeper)
}

function buildFirst(alternatives: readonly unknown[], search: Search): unknown {
  for (const alternative of alternatives) {
    const example = build(alternative, search)
    if (example !== NONE) return example
  }
  return NONE
}

function buildType(schema: Schema, search: Search): unknown {
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type
  switch (type ?? (schema.items === undefined ? 'object' : 'array')) {
    case 'string':
      return exampleText(schema)
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

function exampleObject(schema: Schema, search: Search): unknown {
  const properties = isSchema(schema.properties) ? schema.properties : {}
  const required = Array.isArray(schema.required) ? schema.required : []
  const members: [string, unknown][] = []
  for (const name of new Set(required)) {
    if (typeof name !== 'string') continue
    const example = build(Object.hasOwn(properties, name) ? properties[name] : {}, search)
    if (example === NONE) return NONE
    members.push([name, example])
  }
  return Object.fromEntries(members)
}

function exampleArray(schema: Schema, search: Search): unknown {
  const items: unknown[] = []
  const prefix = Array.isArray(schema.prefixItems) ? schema.prefixItems : []
  for (let index = 0; index < boundOf(schema.minItems, 0); index += 1) {
    const example = build(prefix[index] ?? schema.items ?? {}, search)
    if (example === NONE) return NONE
    items.push(example)
  }
  return items
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

function exampleText(schema: Schema): unknown {
  const format = typeof schema.format === 'string' ? FORMATS[schema.format] : undefined
  if (format !== undefined) return format
  const shortest = boundOf(schema.minLength, 0)
  if (shortest > EXAMPLE_VALUES_MAX) return NONE
  return 'demonstration'.slice(0, boundOf(schema.maxLength, 13)).padEnd(shortest, '.')
}

function exampleNumber(schema: Schema, step: number): unknown {
  const least = boundOf(schema.minimum, Number.NEGATIVE_INFINITY)
  const above = boundOf(schema.exclusiveMinimum, Number.NEGATIVE_INFINITY)
  const most = boundOf(schema.maximum, Number.POSITIVE_INFINITY)
  const below = boundOf(schema.exclusiveMaximum, Number.POSITIVE_INFINITY)
  const multiple = boundOf(schema.multipleOf, step)
  const fits = (value: number) => value >= least && value > above && value <= most && value < below
  // Zero where it is allowed, else the step next to one of the bounds.
  for (const bound of [0, least, above, most, below].filter(Number.isFinite))
    for (const value of multiple > 0
      ? stepsAround(bound, multiple)
      : [bound, bound + 1, bound - 1, (bound + Math.min(most, below)) / 2])
      if (fits(value)) return value
  return NONE
}

function stepsAround(bound: number, multiple: number): readonly number[] {
  const nearest = Math.round(bound / multiple)
  return [nearest, nearest + 1, nearest - 1].map((steps) => steps * multiple)
}

function mergeAll(schema: Schema): Schema {
  const { allOf, ...rest } = schema
  const parts = [rest, ...(Array.isArray(allOf) ? allOf : [])].filter(isSchema)
  const listOf = (name: string) =>
    parts.flatMap((part) => (Array.isArray(part[name]) ? part[name] : []))
  const properties = Object.assign({}, ...parts.map((part) => part.properties))
  return { ...Object.assign({}, ...parts), properties, required: listOf('required') }
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
