import { FormatError, ProofError } from '#attestation/errors.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { configurationDigestOf, type DescribedLog, domainOf, type Head } from './answers.ts'
import { checkGrowth, openHead } from './check-log.ts'
import { type SeenHead, type SeenHeads, seenOf } from './seen-heads.ts'

/** Whether a log continues the head that this browser saw earlier. */
export type Growth =
  /** The first head that this browser sees. `isKept`: the browser stores it. */
  | { readonly kind: 'first'; readonly isKept: boolean }
  /** The log begins with all leaves of `since`, in the same order. It has `size` leaves now. */
  | { readonly kind: 'grew'; readonly since: SeenHead; readonly size: number }
  /**
   * The log does not continue the earlier head, its notary did not sign the new head, or its boot
   * configuration changed. This result stays until the reader leaves the page.
   */
  | {
      readonly kind: 'broken'
      readonly since: SeenHead | null
      readonly head: Head | null
      readonly reason: string
    }
  /** The log could not be checked now. */
  | { readonly kind: 'open'; readonly since: SeenHead | null; readonly reason: string }

/**
 * Watches one log. The boot configuration must stay the same, because a notary's key has only one.
 * Each new head must continue the previous head, and the first must continue the head from the last
 * visit. Only a head that passes is stored for the next visit.
 */
export function createGrowthWatch(options: {
  readonly notary: string
  readonly seen: SeenHeads
  readonly readPath: (range: {
    readonly from: number
    readonly to: number
    readonly signal: AbortSignal
  }) => Promise<readonly Uint8Array[]>
  /** Unix milliseconds. */
  readonly now: () => number
}) {
  const { notary, seen, readPath, now } = options
  const since = seen.find(notary)
  let last = since
  let configuration: string | null = null
  let isKept = true
  let broken: Extract<Growth, { kind: 'broken' }> | null = null

  function report(): Growth {
    if (since === null) return { kind: 'first', isKept }
    return { kind: 'grew', since, size: last?.size ?? since.size }
  }

  async function compare(log: DescribedLog, head: Head | null, signal: AbortSignal): Promise<void> {
    const before = last
    configuration ??= configurationDigestOf(log)
    if (configuration !== configurationDigestOf(log))
      throw new ProofError('other_configuration', 'its enclave now has another boot configuration')
    if (head === null) {
      if (before !== null && before.size > 0) throw cut('no head', before)
      return
    }
    const owner = { notary, domain: domainOf(log) }
    openHead(owner, head)
    if (before !== null) {
      if (before.chainId !== log.chain_id || before.contract !== log.contract)
        throw new ProofError('other_domain', 'its heads now name another chain or contract')
      if (head.size < before.size) throw cut(`a head of ${head.size} leaves`, before)
      const { size: from } = before
      const path = from === head.size ? [] : await readPath({ from, to: head.size, signal })
      checkGrowth(owner, { first: before, second: head, path })
    }
    last = seenOf(log, head, now())
    isKept = seen.keep(notary, last)
  }

  return {
    /** The last head that passed the check, or null. */
    last: () => last,
    /** Checks the gateway's current head. Throws only AbortError. */
    async observe(log: DescribedLog, head: Head | null, signal: AbortSignal): Promise<Growth> {
      if (broken !== null) return broken
      try {
        await compare(log, head, signal)
        return report()
      } catch (fault) {
        if (signal.aborted) throw fault
        const reason = fault instanceof Error ? fault.message : String(fault)
        // A missing or unreadable proof shows nothing about the log. The gateway may send the proof
        // later.
        if (!(fault instanceof ProofError || fault instanceof FormatError) || isUnread(fault))
          return { kind: 'open', since: last, reason }
        broken = { kind: 'broken', since: last, head, reason }
        return broken
      }
    },
  }
}

/** True if the gateway's answer could not be parsed, so that nothing was checked. */
function isUnread(fault: Error): boolean {
  return (
    fault instanceof OwnGatewayFault ||
    (fault instanceof FormatError && fault.code === 'bad_answer')
  )
}

function cut(shown: string, { size }: SeenHead): ProofError {
  return new ProofError('cut', `it shows ${shown}, where it had ${size} leaves before`)
}
