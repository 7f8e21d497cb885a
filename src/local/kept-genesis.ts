import { keccak_256 } from '@noble/hashes/sha3.js'
import { z } from 'zod'
import { encodeHex } from '../../attestation/bytes.ts'
import { encodeHeader, HeaderJson } from '../chain/encode-block.ts'

/**
 * Gives a dumped state of anvil without the blocks 0 that are not the parent of its block 1; null
 * when there is nothing to leave out. anvil makes a genesis of its own at every start and dumps it
 * beside the one that it loaded, and of several it takes any for block 0: the chain would then
 * begin with another block after each start.
 */
export function keepOneGenesis(state: string): string | null {
  const parsed = State.safeParse(parseJson(state))
  if (!parsed.success) return null
  const { blocks } = parsed.data
  const parent = blocks.find(({ header }) => header.number === '0x1')?.header.parentHash
  if (parent === undefined) return null
  const isKept = blocks.map(({ header }) => header.number !== '0x0' || hashOf(header) === parent)
  const count = blocks.filter(({ header }, at) => header.number === '0x0' && isKept[at]).length
  if (count === 0 || isKept.every(Boolean)) return null
  return JSON.stringify({ ...parsed.data, blocks: blocks.filter((_, at) => isKept[at]) })
}

const State = z.looseObject({
  blocks: z.array(
    z.looseObject({ header: z.intersection(HeaderJson, z.looseObject({ number: z.string() })) }),
  ),
})

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** Null for a header with fields of another form: it is then nobody's parent. */
function hashOf(header: z.infer<typeof HeaderJson>): string | null {
  try {
    return `0x${encodeHex(keccak_256(encodeHeader(header)))}`
  } catch {
    return null
  }
}
