import fc from 'fast-check'
import { hostileJsonText } from './hostile-texts.ts'
import { type Dictionary, type Schema, valuesOf } from './schema-arbitrary.ts'
import { type Written, writtenOf } from './written-json.ts'

export type BodyOptions = {
  readonly dictionary: Dictionary
  /** Bodies that the service accepts. */
  readonly examples: readonly object[]
  readonly isSpoiled: boolean
}

/**
 * Bodies of an operation, made from its schema or from an example. With `isSpoiled`, a body from
 * the schema contains hostile values, and in a body from an example one to three members or items,
 * at any depth, are replaced, dropped or repeated.
 */
export function bodiesOf(schema: Schema, options: BodyOptions): fc.Arbitrary<Written> {
  const { examples, isSpoiled } = options
  const made = valuesOf(schema, options)
  if (examples.length === 0) return made
  const example = fc.constantFrom(...examples.map(openWritten))
  if (!isSpoiled) return fc.oneof({ weight: 2, arbitrary: example }, { weight: 1, arbitrary: made })
  const mutated = fc
    .tuple(example, fc.array(mutation, { minLength: 1, maxLength: 3 }))
    .map(([whole, mutations]) => mutations.reduce(mutate, whole))
  return fc.oneof({ weight: 2, arbitrary: mutated }, { weight: 1, arbitrary: made })
}

/**
 * `steps`: the index of the child at each level; indexes that are too large start again from 0. One
 * index beyond the last child stays at the node.
 */
type Mutation = {
  readonly steps: readonly number[]
  readonly kind: 'replace' | 'drop' | 'repeat' | 'wrap'
  readonly text: string
}

const mutation: fc.Arbitrary<Mutation> = fc.record({
  steps: fc.array(fc.nat({ max: 12 }), { minLength: 1, maxLength: 5 }),
  kind: fc.constantFrom('replace', 'replace', 'replace', 'drop', 'repeat', 'wrap'),
  text: hostileJsonText,
})

function mutate(written: Written, { steps, kind, text }: Mutation): Written {
  const [step = 0, ...rest] = steps
  const children = written.kind === 'object' ? written.members.length : childrenOf(written).length
  const at = step % (children + 1)
  if (children === 0 || (at === children && rest.length === 0)) return replace(written, kind, text)
  const index = Math.min(at, children - 1)
  const isHere = rest.length === 0 && (kind === 'drop' || kind === 'repeat')
  const down = (child: Written) =>
    mutate(child, { steps: rest.length === 0 ? [0] : rest, kind, text })
  if (written.kind === 'object') {
    const { members } = written
    if (isHere) return { kind: 'object', members: edited(members, index, kind) }
    return {
      kind: 'object',
      members: members.map(([name, child], place) => [name, place === index ? down(child) : child]),
    }
  }
  const items = childrenOf(written)
  if (isHere) return { kind: 'array', items: edited(items, index, kind) }
  return {
    kind: 'array',
    items: items.map((child, place) => (place === index ? down(child) : child)),
  }
}

function replace(written: Written, kind: Mutation['kind'], text: string): Written {
  return kind === 'wrap' ? { kind: 'array', items: [written] } : { kind: 'text', text }
}

function edited<Item>(
  items: readonly Item[],
  index: number,
  kind: Mutation['kind'],
): readonly Item[] {
  if (kind === 'drop') return items.toSpliced(index, 1)
  return [...items, ...items.slice(index, index + 1)]
}

function childrenOf(written: Written): readonly Written[] {
  return written.kind === 'array' ? written.items : []
}

/** A value with all its members and items separate. */
function openWritten(value: unknown): Written {
  if (Array.isArray(value)) return { kind: 'array', items: value.map(openWritten) }
  if (typeof value !== 'object' || value === null) return writtenOf(value)
  return {
    kind: 'object',
    members: Object.entries(value).map(([name, member]) => [name, openWritten(member)]),
  }
}
