import { readFileSync } from 'node:fs'
import { decodeHex } from '../../../attestation/bytes.ts'
import type { BundlePolicy, ChainFacts } from '../../../attestation/evidence/policy.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import type { Json } from '../../../attestation/json/value.ts'
import type { RawBlock } from './read-block.ts'

/** Blocks that anvil mined, with 1, 2, 17, 130 and 41 transactions. */
export const BLOCKS: readonly RawBlock[] = JSON.parse(read('blocks.json').toString()).blocks

/** A bundle whose anchor is in one of those blocks. */
export const FIRST_BUNDLE: Json = parseExactJson(new Uint8Array(read('first/bundle.json')))

/** That bundle with a block made up around its anchor, an hour before the completion; it must be refused for nothing else. */
export const OLD_ANCHOR_BUNDLE: Json = parseExactJson(new Uint8Array(read('old-anchor/bundle.json')))

/** The checks that fail of it. */
export const OLD_ANCHOR_FAILED: readonly string[] = JSON.parse(
  read('old-anchor/expected.json').toString(),
).failed

/** What it is verified with. */
export const FIRST_EXPECTED: { readonly policy: BundlePolicy; readonly chain: ChainFacts } = readExpected()

function readExpected() {
  const { roots, measurements, configurations, chain } = JSON.parse(read('first/expected.json').toString())
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
