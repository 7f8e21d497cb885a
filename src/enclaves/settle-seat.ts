import { setTimeout as sleep } from 'node:timers/promises'
import type { Identity } from '../../enclave/protocol/messages.ts'
import type { Committer } from '../verified/committer.ts'
import type { EnclaveClient } from './enclave-client.ts'

/** Pause after something failed on the way. */
export const SETTLE_RETRY_MS = 500

/** What a seat is settled through. */
export type SettledSeat = {
  readonly client: Pick<EnclaveClient, 'identity' | 'forgetIdentity'>
  readonly state: { readonly notary: string | null }
  /** Follows the log. */
  readonly committer: Pick<Committer, 'waitFor'> | null
  /** Commits what is left, acknowledges it to the enclave, and follows no more for now. */
  pauseFollowing(): Promise<void>
  resumeFollowing(): void
}

/**
 * Sees to it that all that an enclave sealed is committed, when no call is under way and none comes any more: waits for
 * `settleMs`, because a call that its caller left may be sealed a moment later, then until every leaf is in the database and
 * acknowledged. Gives the notary, or null when `signal` was aborted first or another enclave answers by now. Never rejects.
 */
export async function settleSeat(
  seat: SettledSeat,
  { settleMs, signal }: { readonly settleMs: number; readonly signal: AbortSignal },
): Promise<string | null> {
  const { notary } = seat.state
  let delayMs = settleMs
  while (!signal.aborted) {
    await sleep(delayMs, null, { signal }).catch(() => undefined)
    if (signal.aborted) break
    delayMs = SETTLE_RETRY_MS
    const outcome = await settleOnce(seat, signal).catch(() => 'open' as const)
    if (outcome === 'settled' && !signal.aborted) return notary
    if (outcome === 'replaced') return null
    seat.resumeFollowing()
  }
  return null
}

async function settleOnce(seat: SettledSeat, signal: AbortSignal): Promise<'settled' | 'open' | 'replaced'> {
  const { notary } = seat.state
  const before = await askAnew(seat)
  if (before.notary !== notary) return 'replaced'
  const { size } = before.log
  if (size > 0) {
    if (seat.committer === null) return 'open'
    await seat.committer.waitFor(notary, size - 1, signal)
  }
  await seat.pauseFollowing()
  const after = await askAnew(seat).catch(() => null)
  // One that ended by itself, after all of it was committed, had nothing left.
  if (after === null || after.notary !== notary) return 'settled'
  return after.log.size === size && after.log.acknowledged === size ? 'settled' : 'open'
}

function askAnew({ client }: SettledSeat): Promise<Identity> {
  client.forgetIdentity()
  return client.identity()
}
