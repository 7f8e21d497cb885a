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

/** A bundle of a service with a local chain. */
export const REAL_BUNDLE: Json = parseExactJson(new Uint8Array(read('bundle.json')))

/** What a bundle is verified with. */
type Expected = { readonly policy: BundlePolicy; readonly chain: ChainFacts }

export const REAL_EXPECTED: Expected = readExpected()

function readExpected(): Expected {
  const text = read('expected.json').toString()
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
