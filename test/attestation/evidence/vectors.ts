import { readFileSync } from 'node:fs'
import { decodeHex } from '#attestation/bytes.ts'
import type { BundlePolicy, ChainFacts } from '#attestation/evidence/policy.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'

/** A block as its bytes, all 0x hex: what the tries and the hash are over. */
type RawBlock = {
  readonly number: number
  readonly hash: string
  readonly header: string
  readonly transactions: readonly string[]
  readonly receipts: readonly string[]
  /** As the chain names them. */
  readonly transactionsRoot: string
  readonly receiptsRoot: string
  readonly timestamp: number
}

/** Blocks that anvil mined, with 1, 2, 17, 130 and 41 transactions. */
export const BLOCKS: readonly RawBlock[] = JSON.parse(read('blocks.json').toString()).blocks

/** A bundle whose anchor is in one of those blocks. */
export const FIRST_BUNDLE: Json = parseExactJson(new Uint8Array(read('first/bundle.json')))

/**
 * That bundle with a block made up around its anchor, an hour before the completion; it must be
 * refused for nothing else.
 */
export const OLD_ANCHOR_BUNDLE: Json = parseExactJson(
  new Uint8Array(read('old-anchor/bundle.json')),
)

/** The checks that fail for that bundle. */
export const OLD_ANCHOR_FAILED: readonly string[] = JSON.parse(
  read('old-anchor/expected.json').toString(),
).failed

/**
 * A bundle of version 2, and the same whose head was anchored again because its first transaction
 * was never mined.
 */
export const SECOND_BUNDLE: Json = parseExactJson(new Uint8Array(read('second/bundle.json')))
export const REANCHORED_BUNDLE: Json = parseExactJson(
  new Uint8Array(read('second/reanchored.json')),
)

/** What a bundle is verified with. */
type Expected = { readonly policy: BundlePolicy; readonly chain: ChainFacts }

export const FIRST_EXPECTED: Expected = readExpected('first')
export const SECOND_EXPECTED: Expected = readExpected('second')

function readExpected(folder: string): Expected {
  const text = read(`${folder}/expected.json`).toString()
  const { roots, measurements, configurations, chain } = JSON.parse(text)
  const set = Object.entries(measurements).map(([index, pcr]): [number, Uint8Array] => [
    Number(index),
    decodeHex(String(pcr)),
  ])
  return {
    policy: {
      roots: roots.map(decodeHex),
      measurements: [new Map(set)],
      configurations: configurations.map(decodeHex),
    },
    chain,
  }
}

function read(name: string): Buffer {
  return readFileSync(new URL(`../../vectors/evidence/${name}`, import.meta.url))
}
