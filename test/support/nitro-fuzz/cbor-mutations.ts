import { encodeHead } from '../nitro-builder/cbor-encoder.ts'
import { type Mutation, replaceRange } from './byte-mutations.ts'
import type { Random } from './random.ts'

/** The position of one item of well-formed CBOR. `argument` is null for indefinite length. */
export type Item = {
  readonly major: number
  readonly argument: bigint | null
  readonly start: number
  readonly headEnd: number
  readonly end: number
  readonly children: readonly Item[]
}

/** Gives the item at `start` of well-formed CBOR, as the security module writes it. */
export function readItem(bytes: Uint8Array, start = 0): Item {
  const first = bytes[start] ?? 0
  const [major, info] = [first >> 5, first & 31]
  const width = info < 24 || info === 31 ? 0 : 1 << (info - 24)
  const headEnd = start + 1 + width
  const digits = Buffer.from(bytes.subarray(start + 1, headEnd)).toString('hex')
  const argument = info === 31 ? null : width === 0 ? BigInt(info) : BigInt(`0x${digits}`)
  const base = { major, argument, start, headEnd }
  if (major === 2 || major === 3) return { ...base, end: headEnd + Number(argument), children: [] }
  if (major !== 4 && major !== 5) return { ...base, end: headEnd, children: [] }
  const children: Item[] = []
  const count = argument === null ? Number.POSITIVE_INFINITY : Number(argument) * (major - 3)
  let end = headEnd
  while (children.length < count && !(argument === null && bytes[end] === 0xff)) {
    const child = readItem(bytes, end)
    children.push(child)
    end = child.end
  }
  return { ...base, end: argument === null ? end + 1 : end, children }
}

/**
 * Mutations of one item of well-formed CBOR; everything around the mutated item stays well-formed.
 */
export const cborMutations: Readonly<Record<string, Mutation>> = {
  'widen a head': onItem((item, bytes, random) => headed(item, bytes, wideHead(item, random))),
  'make indefinite': onItem((item, bytes) =>
    Buffer.concat([
      Buffer.of((item.major << 5) | 31),
      bytes.subarray(item.headEnd, item.end),
      Buffer.of(0xff),
    ]),
  ),
  tag: onItem((item, bytes, random) =>
    Buffer.concat([
      encodeHead(6, random.pick([0, 2, 18, 24, 105, 55_799, 57_342])),
      bytes.subarray(item.start, item.end),
    ]),
  ),
  'change a length': onItem((item, bytes, random) =>
    headed(
      item,
      bytes,
      encodeHead(
        item.major,
        BigInt.asUintN(64, (item.argument ?? 0n) + BigInt(random.pick([-1, 1, 2, 255, 65_536]))),
      ),
    ),
  ),
  'change a type': onItem((item, bytes, random) =>
    headed(item, bytes, encodeHead(random.below(8), item.argument ?? 0n)),
  ),
  drop: onItem(() => new Uint8Array()),
  double: onItem((item, bytes) =>
    Buffer.concat([bytes.subarray(item.start, item.end), bytes.subarray(item.start, item.end)]),
  ),
  'repeat an entry': onItem((item, bytes, random) => {
    const step = item.major - 3
    const count = Math.floor(item.children.length / step)
    if (item.argument === null || item.children.length === 0)
      return bytes.subarray(item.start, item.end)
    const index = random.below(count) * step
    const [first, last] = [item.children[index], item.children[index + step - 1]]
    const entry = bytes.subarray(first?.start, last?.end)
    return Buffer.concat([
      encodeHead(item.major, count + 1),
      bytes.subarray(item.headEnd, item.end),
      entry,
    ])
  }),
  'replace with a special value': onItem((_, __, random) =>
    Buffer.from(
      random.pick([
        'f6',
        'f7',
        'f5',
        '00',
        '20',
        '40',
        '60',
        '80',
        'a0',
        'ff',
        '5fff',
        '9fff',
        'bfff',
        'f90000',
        'fb7ff0000000000000',
        '1bffffffffffffffff',
        '3bffffffffffffffff',
        '1c',
        'f818',
      ]),
      'hex',
    ),
  ),
  'nest deeply': onItem((_, __, random) =>
    Buffer.from(`${random.pick(['81', 'a100', 'd2'])}`.repeat(1 + random.below(100)), 'hex'),
  ),
  'exchange with another': (bytes, random) => {
    const items = flatten(readItem(bytes))
    const [one, two] = [random.pick(items), random.pick(items)]
    const [left, right] = one.start < two.start ? [one, two] : [two, one]
    if (left.end > right.start) return bytes
    return Buffer.concat([
      bytes.subarray(0, left.start),
      bytes.subarray(right.start, right.end),
      bytes.subarray(left.end, right.start),
      bytes.subarray(left.start, left.end),
      bytes.subarray(right.end),
    ])
  },
}

type ItemMutation = (item: Item, bytes: Uint8Array, random: Random) => Uint8Array

function onItem(mutate: ItemMutation): Mutation {
  return (bytes, random) => {
    // Half of the time an item near the top, where most rules apply.
    const root = readItem(bytes)
    const item = random.pick(random.below(2) === 0 ? [root, ...root.children] : flatten(root))
    return replaceRange(bytes, {
      start: item.start,
      end: item.end,
      by: mutate(item, bytes, random),
    })
  }
}

function flatten(item: Item): readonly Item[] {
  return [item, ...item.children.flatMap(flatten)]
}

function headed(item: Item, bytes: Uint8Array, head: Uint8Array): Uint8Array {
  return Buffer.concat([head, bytes.subarray(item.headEnd, item.end)])
}

function wideHead({ major, argument }: Item, random: Random): Uint8Array {
  const info = 24 + random.below(4)
  const head = Buffer.alloc(9)
  head.writeBigUInt64BE(BigInt.asUintN(64, argument ?? 0n), 1)
  return Buffer.concat([Buffer.of((major << 5) | info), head.subarray(9 - (1 << (info - 24)))])
}
