import fc from 'fast-check'
import { hostileJsonText, hostileText } from './hostile-texts.ts'
import { type Written, type WrittenMember, writtenOf } from './written-json.ts'

export type Schema = Readonly<Record<string, unknown>>

/** Values that mean something to the service, by the name of their member or parameter. */
export type Dictionary = Readonly<Record<string, readonly unknown[]>>

/** How much longer lists and texts are than their schema requires. */
const EXCESS_MAX = 3
const TEXT_EXCESS_MAX = 12

/**
 * Values of a JSON Schema, with the keywords of this interface's schemas: type, const, enum,
 * properties, required, items, anyOf, oneOf, allOf, pattern, and the bounds of lists, texts and
 * numbers. With `isSpoiled`, any value may be hostile, and members may be missing, strange, or
 * repeated.
 */
export function valuesOf(
  schema: Schema,
  options: { readonly dictionary: Dictionary; readonly isSpoiled: boolean },
  name = '',
): fc.Arbitrary<Written> {
  const known = Object.hasOwn(options.dictionary, name) ? options.dictionary[name] : undefined
  const faithful = faithfulTo(schema, options)
  const informed =
    known === undefined || known.length === 0
      ? faithful
      : fc.oneof(
          { weight: 4, arbitrary: fc.constantFrom(...known.map(writtenOf)) },
          { weight: 1, arbitrary: faithful },
        )
  if (!options.isSpoiled) return informed
  const hostile = hostileJsonText.map((text): Written => ({ kind: 'text', text }))
  return fc.oneof({ weight: 12, arbitrary: informed }, { weight: 1, arbitrary: hostile })
}

type Options = Parameters<typeof valuesOf>[1]

function faithfulTo(schema: Schema, options: Options): fc.Arbitrary<Written> {
  if ('const' in schema) return fc.constant(writtenOf(schema.const))
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum.map(writtenOf))
  const forms = listOf(schema.anyOf ?? schema.oneOf)
  if (forms.length > 0) return fc.oneof(...forms.map((form) => valuesOf(form, options)))
  const parts = listOf(schema.allOf)
  if (parts.length > 0) return faithfulTo(joinParts(parts), options)
  const types: readonly unknown[] = Array.isArray(schema.type) ? schema.type : [schema.type]
  return fc.oneof(...types.map((type) => ofType(type, schema, options)))
}

function ofType(type: unknown, schema: Schema, options: Options): fc.Arbitrary<Written> {
  switch (type) {
    case 'null':
      return fc.constant(writtenOf(null))
    case 'boolean':
      return fc.boolean().map(writtenOf)
    case 'integer':
      return fc.oneof(...integersOf(schema)).map(writtenOf)
    case 'number':
      return fc
        .oneof(...integersOf(schema), fc.double({ ...numberBounds(schema, 1e9), noNaN: true }))
        .map(writtenOf)
    case 'string':
      return textsOf(schema).map(writtenOf)
    case 'array':
      return listsOf(schema, options)
    case 'object':
      return objectsOf(schema, options)
    default:
      return fc.json({ maxDepth: 2 }).map((text): Written => ({ kind: 'text', text }))
  }
}

function integersOf(schema: Schema): readonly fc.Arbitrary<number>[] {
  const { min, max } = numberBounds(schema, 2 ** 31)
  return [
    fc.integer({ min, max: Math.min(max, min + 20) }),
    fc.constantFrom(min, max),
    fc.integer({ min, max }),
  ]
}

function numberBounds(
  schema: Schema,
  most: number,
): { readonly min: number; readonly max: number } {
  return {
    min: Math.ceil(numberOr(schema.minimum, -most)),
    max: Math.floor(numberOr(schema.maximum, most)),
  }
}

/** Cached by schema: to make one for a pattern takes longer than many requests. */
const made = new Map<string, fc.Arbitrary<string>>()

function textsOf(schema: Schema): fc.Arbitrary<string> {
  const key = JSON.stringify([schema.pattern, schema.minLength, schema.maxLength])
  const texts = made.get(key) ?? makeTexts(schema)
  made.set(key, texts)
  return texts
}

function makeTexts(schema: Schema): fc.Arbitrary<string> {
  if (typeof schema.pattern === 'string') return fc.stringMatching(new RegExp(schema.pattern))
  const minLength = numberOr(schema.minLength, 0)
  const maxLength = numberOr(schema.maxLength, minLength + TEXT_EXCESS_MAX)
  const short = { minLength, maxLength: Math.min(maxLength, minLength + TEXT_EXCESS_MAX) }
  return fc.oneof(
    { weight: 6, arbitrary: fc.string(short) },
    { weight: 2, arbitrary: fc.string({ ...short, unit: 'grapheme' }) },
    { weight: 1, arbitrary: fc.constant('x'.repeat(maxLength)) },
  )
}

function listsOf(schema: Schema, options: Options): fc.Arbitrary<Written> {
  const minLength = numberOr(schema.minItems, 0)
  const maxLength = Math.min(
    numberOr(schema.maxItems, Number.POSITIVE_INFINITY),
    minLength + EXCESS_MAX,
  )
  const item = valuesOf(isSchema(schema.items) ? schema.items : {}, options)
  return fc
    .array(item, { minLength, maxLength })
    .map((items): Written => ({ kind: 'array', items }))
}

function objectsOf(schema: Schema, options: Options): fc.Arbitrary<Written> {
  const properties = isSchema(schema.properties) ? schema.properties : {}
  const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : []
  const members = Object.entries(properties).map(([name, property]) => {
    const value = valuesOf(isSchema(property) ? property : {}, options, name)
    const member = value.map((written): WrittenMember | null => [name, written])
    if (required.includes(name)) return member
    return fc.oneof({ weight: 4, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: member })
  })
  const listed = fc.tuple(...members).map((all) => all.filter((member) => member !== null))
  const edited = options.isSpoiled
    ? fc.tuple(listed, fc.option(edit, { freq: 5 })).map(applyEdit)
    : listed
  return edited.map((list): Written => ({ kind: 'object', members: list }))
}

/** A change of one member: `at` is its index; indexes that are too large start again from 0. */
type Edit = {
  readonly at: number
  readonly kind: 'drop' | 'repeat' | 'rename' | 'add'
  readonly name: string
}

const edit: fc.Arbitrary<Edit> = fc.record({
  at: fc.nat({ max: 20 }),
  kind: fc.constantFrom('drop', 'repeat', 'rename', 'add'),
  name: hostileText,
})

function applyEdit([members, how]: readonly [
  readonly WrittenMember[],
  Edit | null,
]): readonly WrittenMember[] {
  if (how === null) return members
  const at = members.length === 0 ? 0 : how.at % members.length
  const chosen = members[at] ?? ['a', writtenOf(0)]
  switch (how.kind) {
    case 'drop':
      return members.toSpliced(at, 1)
    case 'repeat':
      return [...members, chosen]
    case 'rename':
      return members.toSpliced(at, 1, [how.name, chosen[1]])
    case 'add':
      return [...members, [how.name, chosen[1]]]
  }
}

/** Schema of an object that is all of these. */
function joinParts(parts: readonly Schema[]): Schema {
  return {
    type: 'object',
    properties: Object.assign({}, ...parts.map(({ properties }) => properties)),
    required: parts.flatMap(({ required }) => (Array.isArray(required) ? required : [])),
  }
}

function listOf(value: unknown): readonly Schema[] {
  return Array.isArray(value) ? value.filter(isSchema) : []
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
