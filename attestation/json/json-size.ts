/** The numbers of values in a JSON text. Two bytes of text can need a hundred bytes of memory. */
export type JsonSize = {
  /** Arrays and objects. */
  readonly containers: number
  /** Members in all objects together. */
  readonly members: number
  /** Items in all arrays together. */
  readonly items: number
}

/**
 * Limits for a provider's answer. An answer of 24 MiB with 20 `top_logprobs` for each token has 0.8
 * million containers, 1.2 million members and 2 million items. 24 MiB of `{},` would be 8 million
 * objects.
 */
export const ANSWER_SIZE_MAX: JsonSize = {
  containers: 1_000_000,
  members: 2_000_000,
  items: 4_000_000,
}

/**
 * Counts the values of `input` (attacker-controlled, UTF-8 bytes or text) without creating them. If
 * `input` is not JSON, a parser creates at most this many values.
 */
export function measureJson(input: Uint8Array | string): JsonSize {
  const codeAt =
    typeof input === 'string'
      ? (index: number) => input.charCodeAt(index)
      : (index: number) => input[index]
  let containers = 0
  let members = 0
  // Each value except the outermost is the first in its container or comes after a comma.
  let children = 0
  let isEmpty = false
  for (let index = 0; index < input.length; index++) {
    const code = codeAt(index)
    if (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) continue
    if (isEmpty && code !== 0x7d && code !== 0x5d) children++
    isEmpty = code === 0x7b || code === 0x5b
    if (isEmpty) containers++
    else if (code === 0x2c) children++
    else if (code === 0x3a) members++
    else if (code === 0x22) {
      for (index++; index < input.length && codeAt(index) !== 0x22; index++)
        if (codeAt(index) === 0x5c) index++
    }
  }
  return { containers, members, items: Math.max(0, children - members) }
}

export function isWithinSize(size: JsonSize, max: JsonSize): boolean {
  return size.containers <= max.containers && size.members <= max.members && size.items <= max.items
}
