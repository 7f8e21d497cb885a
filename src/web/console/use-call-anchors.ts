import { useRef } from 'preact/hooks'
import { decodeHex } from '#attestation/bytes.ts'
import type { HeadListReply } from '../../verified/logs/log-replies.ts'
import { askOwnGateway } from '../kit/gateway.ts'
import { useLoaded } from '../kit/use-loaded.ts'
import type { Call } from './calls.ts'

export type CallAnchor = {
  /** The notary whose log contains the call. */
  readonly notary: string
  readonly state: HeadListReply['heads'][number]['anchor']['state']
  readonly txHash: string
  readonly block: number | null
}

/**
 * Keys are the public key and the size of the head. Calls under the same head have the same anchor.
 */
export type CallAnchors = ReadonlyMap<string, CallAnchor>

/**
 * Heads that one request reads. Calls that are close together in the log have heads that are close
 * together, so few requests are enough.
 */
const HEADS_MAX = 100
/** Anchors change by themselves, so they are read repeatedly. */
const EVERY_MS = 5_000

/** Reads the anchors from the public log repeatedly, until each is confirmed. */
export function useCallAnchors(calls: readonly Call[] | null): CallAnchors {
  const known = useRef<CallAnchors>(new Map())
  const { value } = useLoaded(
    async (signal) => {
      known.current = await readCallAnchors(calls ?? [], { known: known.current, signal })
      return known.current
    },
    [calls],
    { everyMs: EVERY_MS },
  )
  return value ?? known.current
}

/** Reads the anchors that may still change, and returns them with the known anchors. */
export async function readCallAnchors(
  calls: readonly Call[],
  { known, signal }: { readonly known: CallAnchors; readonly signal: AbortSignal },
): Promise<CallAnchors> {
  const anchors = new Map(known)
  for (const [publicKey, sizes] of openHeads(calls, known))
    await readAnchors(publicKey, { sizes, signal, anchors })
  return anchors
}

/** Undefined while the anchor is unknown. */
export function anchorOf(anchors: CallAnchors, call: Call): CallAnchor | undefined {
  return anchors.get(nameOf(call.public_key, call.log.size))
}

function nameOf(publicKey: string, size: number): string {
  return `${publicKey} ${size}`
}

/** Returns for each public key the sizes of the heads whose anchors may still change, ascending. */
function openHeads(calls: readonly Call[], known: CallAnchors): ReadonlyMap<string, Set<number>> {
  const open = new Map<string, Set<number>>()
  for (const { public_key: publicKey, log } of calls.toSorted(
    (one, other) => one.log.size - other.log.size,
  )) {
    if (known.get(nameOf(publicKey, log.size))?.state === 'confirmed') continue
    open.set(publicKey, (open.get(publicKey) ?? new Set()).add(log.size))
  }
  return open
}

/** Reads page by page, until the heads of all `sizes` are read. */
async function readAnchors(
  publicKey: string,
  {
    sizes,
    signal,
    anchors,
  }: {
    readonly sizes: Set<number>
    readonly signal: AbortSignal
    readonly anchors: Map<string, CallAnchor>
  },
): Promise<void> {
  const notary = await notaryOf(publicKey)
  if (notary === null) return
  for (const size of sizes) {
    const path = `/v1/log/${notary}/heads?cursor=${size - 1}&limit=${HEADS_MAX}`
    const { heads } = await askOwnGateway<HeadListReply>(path, { signal })
    for (const { size: found, anchor } of heads) {
      if (!sizes.delete(found)) continue
      const { state, tx_hash: txHash, block_number: block } = anchor
      anchors.set(nameOf(publicKey, found), { notary, state, txHash, block })
    }
  }
}

/** Null for a text that is not a public key. The cryptography is loaded when it is first needed. */
async function notaryOf(publicKey: string): Promise<string | null> {
  const { addressOf } = await import('#attestation/account.ts')
  try {
    return addressOf(decodeHex(publicKey))
  } catch {
    return null
  }
}
