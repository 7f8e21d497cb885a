import { equalBytes } from '../../../attestation/bytes.ts'
import type { ServedHead } from './answers.ts'
import type { Gateway } from './gateway.ts'

/** Most heads that are asked for again: each is a call. */
const REFRESHED_MAX = 1_000

/**
 * Heads that waited for their anchor, with the transaction that the gateway names for them now: one
 * that could not be mined may have been replaced meanwhile. Whatever is not the same head, made in
 * the place of the very transaction that was named before, is left as it was. Throws GatewayFault.
 */
export async function refreshWaiting(
  heads: readonly ServedHead[],
  { gateway, notary }: { readonly gateway: Pick<Gateway, 'fetchHead'>; readonly notary: string },
): Promise<readonly ServedHead[]> {
  const refreshed: ServedHead[] = []
  for (const head of heads.slice(0, REFRESHED_MAX)) {
    const served = await gateway.fetchHead(notary, head.size)
    refreshed.push(served !== null && isReplacement(served, head) ? { ...head, anchor: served.anchor } : head)
  }
  return [...refreshed, ...heads.slice(REFRESHED_MAX)]
}

function isReplacement(served: ServedHead, known: ServedHead): boolean {
  return (
    equalBytes(served.root, known.root) &&
    equalBytes(served.signature, known.signature) &&
    served.anchor.replaces.includes(known.anchor.txHash)
  )
}
