import type { Random } from './random.ts'

/** Changes bytes. */
export type Mutation = (bytes: Uint8Array, random: Random) => Uint8Array

/** `bytes` with `start` to `end` replaced. */
export function replaceRange(
  bytes: Uint8Array,
  { start, end, by }: { readonly start: number; readonly end: number; readonly by: Uint8Array },
): Uint8Array {
  return Buffer.concat([bytes.subarray(0, start), by, bytes.subarray(end)])
}

/** Mutations that do not use the meaning of the bytes. */
export const byteMutations: Readonly<Record<string, Mutation>> = {
  'flip a bit': (bytes, random) => {
    const index = random.below(bytes.length)
    return Uint8Array.from(bytes).with(index, (bytes[index] ?? 0) ^ (1 << random.below(8)))
  },
  'flip some bits': (bytes, random) => {
    const mutated = Uint8Array.from(bytes)
    for (let count = 1 + random.below(8); count > 0; count--) {
      const index = random.below(mutated.length)
      mutated[index] = (mutated[index] ?? 0) ^ (1 << random.below(8))
    }
    return mutated
  },
  'set a byte': (bytes, random) =>
    Uint8Array.from(bytes).with(
      random.below(bytes.length),
      random.pick([0, 0x1f, 0x7f, 0x80, 0xff, random.below(256)]),
    ),
  truncate: (bytes, random) => bytes.slice(0, random.below(bytes.length)),
  extend: (bytes, random) => Buffer.concat([bytes, random.bytes(1 + random.below(64))]),
  'cut out': (bytes, random) => {
    const start = random.below(bytes.length)
    return replaceRange(bytes, { start, end: start + 1 + random.below(64), by: new Uint8Array() })
  },
  'put in': (bytes, random) => {
    const start = random.below(bytes.length)
    return replaceRange(bytes, { start, end: start, by: random.bytes(1 + random.below(16)) })
  },
  repeat: (bytes, random) => {
    const start = random.below(bytes.length)
    const end = start + 1 + random.below(256)
    return replaceRange(bytes, { start: end, end, by: bytes.subarray(start, end) })
  },
  'only noise': (_, random) => random.bytes(random.below(512)),
}

/** Joins the beginning of one document to the end of another. */
export function splice(left: Uint8Array, right: Uint8Array, random: Random): Uint8Array {
  const at = random.below(left.length)
  const from = random.below(2) === 0 ? at : random.below(right.length)
  return Buffer.concat([left.subarray(0, at), right.subarray(from)])
}
