import { addressOf } from '#attestation/account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { headAttestationUserData } from '#attestation/evidence/head-attestation.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { HeadAttestationReply, Identity } from '#enclave/protocol/enclave-api.ts'
import { asError } from '../../api/errors.ts'
import type { RecentBlock } from '../../chain/chain-reads.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import type { Logger } from '../../observability/logger.ts'
import { backOffMs } from '../../runtime/back-off.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { createLoop, pause } from '../../runtime/loop.ts'
import { CommitError } from '../commit-error.ts'
import type { HeadAttestationsStore, StoredHeadAttestation } from './head-attestations-store.ts'

/** The pause doubles after each failure. It never exceeds the maximum or the interval. */
const BACKOFF_MIN_MS = 1_000
const BACKOFF_MAX_MS = 60_000
const FAULT_LOG_INTERVAL_MS = 10 * 60_000
/** How long to wait until the committer has opened the log, and the pause between two reads. */
const LOG_WAIT_MS = 10_000
const LOG_POLL_MS = 100

type HeadAttestationsStatus = {
  /**
   * Number of stored attestations. `dropped`: their enclave was replaced. `contradictions`:
   * attestations that contradict the log, and were refused.
   */
  readonly kept: number
  readonly dropped: number
  readonly contradictions: number
  /** Why the last attempt failed. Null after a successful attempt. */
  readonly fault: { readonly name: string; readonly message: string } | null
}

/** Regularly asks the enclave to attest the state of its log. */
export type HeadAttestations = {
  start(): void
  stop(): Promise<void>
  status(): HeadAttestationsStatus
}

export type HeadAttestationsOptions = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'attestHead'>
  /**
   * `waitFor` resolves when the leaf is committed. It rejects with CommitError if the leaf is lost.
   */
  readonly committer: {
    waitFor(notary: string, index: number, signal: AbortSignal): Promise<unknown>
  }
  readonly store: Pick<HeadAttestationsStore, 'findRoot' | 'keep'>
  /** Never returns the newest block, because a reorganisation may remove it. */
  readonly fetchBlock: (signal: AbortSignal) => Promise<RecentBlock>
  readonly intervalMs: number
  readonly log: Logger
  /** Monotonic milliseconds. */
  readonly now: () => number
}

/**
 * The enclave attests the state of its log together with the hash of a recent block. An attestation
 * is stored if the log in this database has the same root at the attested size. The enclave also
 * counts leaves that are not committed yet, so the gateway first waits for these leaves. If the
 * enclave is replaced during this wait, the leaves are lost, and the attestation is dropped. After
 * an error, the gateway tries again. Does NOT verify the documents' signatures, because a gateway
 * has no root certificates. A third party verifies them (verifyHeadAttestation).
 */
export function createHeadAttestations(options: HeadAttestationsOptions): HeadAttestations {
  const { enclave, committer, store, fetchBlock, intervalMs, log } = options
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, options.now)
  let counts: Readonly<Record<Outcome, number>> = { kept: 0, dropped: 0, contradictions: 0 }
  let fault: HeadAttestationsStatus['fault'] = null
  let failuresInRow = 0

  async function attest(signal: AbortSignal): Promise<Outcome> {
    const block = await fetchBlock(signal)
    const identity = await enclave.identity()
    const { notary, boot_configuration: boot } = identity
    if (block.chainId !== boot.chain_id)
      throw new Error(
        `expected a block of chain ${boot.chain_id}, got a block of chain ${block.chainId}`,
      )
    const attestation = readReply(await enclave.attestHead(block.hash, signal), { identity, block })
    const { size, root } = attestation
    const facts = { notary, size, block: block.number }
    if (!(await awaitCommit({ notary, size }, signal))) {
      log.warn(
        facts,
        'head attestation dropped: its enclave was replaced before its leaves were committed',
      )
      return 'dropped'
    }
    const stored = await findLog({ notary, size }, signal)
    if (!equalBytes(stored.root, root)) {
      const roots = { attestedRoot: encodeHex(root), storedRoot: encodeHex(stored.root) }
      log.error({ ...facts, ...roots }, 'the enclave attests a log that is not the stored log')
      return 'contradictions'
    }
    await store.keep({ ...attestation, logId: stored.logId })
    log.info(facts, 'log attested')
    return 'kept'
  }

  /** Returns false if the first `size` leaves will never be committed. */
  async function awaitCommit({ notary, size }: LogOfSize, signal: AbortSignal): Promise<boolean> {
    if (size === 0) return true
    try {
      await committer.waitFor(notary, size - 1, signal)
      return true
    } catch (error) {
      if (error instanceof CommitError && error.code === 'notary_gone') return false
      throw error
    }
  }

  async function findLog(state: LogOfSize, signal: AbortSignal) {
    const deadline = performance.now() + LOG_WAIT_MS
    for (;;) {
      const found = await store.findRoot(state)
      if (found !== null) return found
      if (performance.now() > deadline)
        throw new Error(`expected ${state.size} leaves of log ${state.notary}`)
      await pause(LOG_POLL_MS, signal)
      signal.throwIfAborted()
    }
  }

  const loop = createLoop(async (signal) => {
    try {
      const outcome = await attest(signal)
      counts = { ...counts, [outcome]: counts[outcome] + 1 }
      failuresInRow = 0
      fault = null
      faults.clear()
      // If the enclave was replaced, the new log has no attestation yet, so the pause is short.
      return outcome === 'dropped' ? Math.min(BACKOFF_MIN_MS, intervalMs) : intervalMs
    } catch (thrown) {
      if (thrown instanceof EnclaveReplaced) enclave.forgetIdentity()
      if (signal.aborted) return 0
      const error = asError(thrown)
      fault = { name: error.name, message: error.message }
      if (faults.isDue(`${error.name}: ${error.message}`))
        log.warn({ err: error }, 'log not attested, trying again')
      failuresInRow++
      const bounds = { minMs: BACKOFF_MIN_MS, maxMs: BACKOFF_MAX_MS }
      return Math.min(backOffMs(failuresInRow, bounds, { jitter: 'none' }), intervalMs)
    }
  })

  return { start: loop.start, stop: loop.stop, status: () => ({ ...counts, fault }) }
}

type Outcome = 'kept' | 'dropped' | 'contradictions'

type LogOfSize = { readonly notary: string; readonly size: number }

/** The document's key is not the key of the enclave's identity, so the enclave was replaced. */
class EnclaveReplaced extends Error {
  override readonly name = 'EnclaveReplaced'
}

/** Throws EnclaveReplaced if the document has the key of another enclave, otherwise Error. */
function readReply(
  reply: HeadAttestationReply,
  { identity, block }: { readonly identity: Identity; readonly block: RecentBlock },
): StoredHeadAttestation {
  const { notary, boot_configuration: boot } = identity
  const { size } = reply
  const root = decodeHex(reply.root)
  const document = decodeBase64(reply.document)
  const { publicKey, userData, nonce, timestampMs } = decodeAttestationPayload(document)
  if (publicKey === null || addressOf(publicKey) !== notary)
    throw new EnclaveReplaced(`expected a document of ${notary}, got a document of another key`)
  const blockHash = decodeHex(block.hash)
  const configuration = digestBootConfiguration(boot)
  const expected = headAttestationUserData({ configuration, notary, size, root })
  if (
    userData === null ||
    nonce === null ||
    !equalBytes(userData, expected) ||
    !equalBytes(nonce, blockHash)
  )
    throw new Error(
      'expected a document over the head that came with it and the hash that was sent',
    )
  const createdAt = Math.floor(timestampMs / 1000)
  return { size, root, blockNumber: block.number, blockHash, document, createdAt }
}
