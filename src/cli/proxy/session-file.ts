import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { writeEvidence } from '#attestation/evidence/create-evidence.ts'
import { printable } from '#attestation/report/printable.ts'
import type { Affidavit } from '#client/connect.ts'
import { AffidavitError, messageOf } from '#client/errors.ts'
import { delay } from '#client/gateway.ts'
import type { Proof } from '#client/proof.ts'
import {
  type CallSession,
  type LostRequests,
  type SessionStart,
  withUnanswered,
} from '#client/session.ts'
import { CliError } from '../faults.ts'
import { lockFile } from '../file-lock.ts'
import { SOURCE_BYTES_MAX } from '../files.ts'
import { type KeptCall, openJournal, placeOf, readJournal } from './session-journal.ts'

type WrittenSession = Pick<CallSession, 'id' | 'unanswered'>

export type SessionFile = {
  /** Undefined for a new session. */
  readonly start: SessionStart | undefined
  /** The owner of an earlier run's session, see ownerOf. Null if the session had no owner. */
  readonly owner: string | null
  /** Resolves when the call is on the disk, where a crash cannot lose it. */
  keep(proof: Proof): Promise<void>
  /** Keeps whose session it is, for a later run. */
  keepOwner(id: string, owner: string): Promise<void>
  /** Keeps the requests of a call without an answer, for a later run. */
  keepLost(id: string, lost: LostRequests): Promise<void>
  /** True if the file with one more call could be larger than `affidavit verify` reads. */
  isFull(): boolean
  /**
   * Adds the calls' evidence to the file from now on, with this API key. Must be called again
   * after a lasting error, such as a full disk.
   */
  complete(apiKey: string | null, session: WrittenSession): void
  /**
   * Resolves with the number of calls whose evidence was not added, and whether the session has
   * calls, but not its last call.
   */
  close(): Promise<{
    readonly waiting: number
    readonly isOpen: boolean
  }>
}

/** A stopping proxy waits this long for anchors. */
export const CLOSE_TIMEOUT_MS = 15_000
/** Maximum wait for another proxy that uses the file. It may drain calls, and wait for anchors. */
const LOCK_TIMEOUT_MS = 60_000
/** Largest call with its answer, bytes. */
const CALL_BYTES_MAX = 32 * 1024 * 1024
/** The block and the other proofs of a call, bytes. */
const PROOFS_BYTES = 48 * 1024
/** Pause before the gateway is asked again, milliseconds. */
const PAUSE_MS = 2_000

/**
 * Writes the evidence of the calls to `path`, one per line, as their anchors arrive. Until the
 * session has had its last call, and all evidence is there, `path`.calls has all calls and the
 * requests without an answer, one per line. A call is written before the end of its answer is
 * passed on. If `path`.calls exists, continues that session and writes the evidence again, in
 * `path`.part until it has the kept calls. Only one process can use `path`, by the lock
 * `path`.lock. If only `path` exists, throws CliError.
 */
export async function openSessionFile(
  path: string,
  affidavit: Pick<Affidavit, 'anchored'>,
): Promise<SessionFile> {
  const lock = await lockFile(path, { timeoutMs: LOCK_TIMEOUT_MS, advice: 'Name another file' })
  // On a full disk, the lock ends with the process.
  const release = () => lock.release().catch(() => undefined)
  try {
    return await openLocked(path, affidavit, release)
  } catch (fault) {
    await release()
    throw fault
  }
}

async function openLocked(
  path: string,
  { anchored }: Pick<Affidavit, 'anchored'>,
  release: () => Promise<void>,
): Promise<SessionFile> {
  const journal = `${path}.calls`
  const { calls: waiting, start, owner } = await readJournal(journal)
  const isWritten = await isThere(path)
  if (waiting.length === 0 && isWritten)
    throw new CliError(`${printable(path)} exists: name a new file for the session`)
  const calls = await openJournal(journal)
  const lines = createLineWriter(path, isWritten ? waiting.length : 0)
  const queue: KeptCall[] = [...waiting]
  const stopping = new AbortController()
  let added: () => void = () => undefined
  let running: Promise<void> | null = null
  let isClosing = false
  let key: string | null = null
  let written: WrittenSession | null = null
  let count = queue.length
  let isOpen = start !== undefined && start.isEnded !== true

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      const [call] = queue
      if (call === undefined) {
        if (isClosing) return
        await new Promise<void>((resolve) => {
          added = resolve
        })
        continue
      }
      try {
        const more = key === null ? {} : { apiKey: key }
        const { evidence } = await anchored(call, { signal: stopping.signal, ...more })
        await lines.add(evidence)
        queue.shift()
      } catch (fault) {
        if (stopping.signal.aborted) return
        const isLasting = !(fault instanceof AffidavitError) || fault.status !== undefined
        process.stderr.write(
          `${call.evidence.record.hash}: its evidence was not added: ${printable(messageOf(fault))}\n`,
        )
        if (isLasting) return
        await delay(PAUSE_MS, stopping.signal).catch(() => undefined)
      }
    }
  }

  return {
    start,
    owner,
    keepOwner: calls.addOwner,
    async keepLost(id, lost) {
      if (lost.unanswered.length > 0) isOpen = true
      await calls.addLost(id, lost)
    },
    async keep(proof) {
      await calls.addCall(proof)
      isOpen = placeOf(proof.evidence)?.last === undefined
      count += 1
      queue.push({ evidence: proof.evidence })
      added()
    },
    isFull: () =>
      calls.size() + count * PROOFS_BYTES + lines.documentsSize() >
      SOURCE_BYTES_MAX - CALL_BYTES_MAX,
    complete(apiKey, session) {
      key = apiKey
      written = session
      running ??= run().finally(() => {
        running = null
      })
    },
    async close() {
      isClosing = true
      added()
      const timer = setTimeout(() => stopping.abort(new Error('the proxy stops')), CLOSE_TIMEOUT_MS)
      await running
      clearTimeout(timer)
      await calls.close()
      await lines.close(written?.unanswered ?? [])
      if (queue.length === 0 && !isOpen) await rm(journal)
      await release()
      return { waiting: queue.length, isOpen }
    },
  }
}

/**
 * After each call, added or not, the file is complete. It has each document of a provider once. The
 * file of an earlier run stays until the new one has `written` calls.
 */
function createLineWriter(path: string, written: number) {
  const part = `${path}.part`
  let file: FileHandle | null = null
  let isPart = written > 0
  let count = 0
  let last: EvidenceBundle | null = null
  /** Where the line of `last` begins, and where it ends. */
  let start = 0
  let end = 0
  /** The sizes of the providers' documents in the file, by their digests. */
  const documents = new Map<string, number>()
  /** If this fails, nothing follows the lines before. */
  async function writeLine(to: FileHandle, evidence: EvidenceBundle, at: number): Promise<void> {
    const bytes = Buffer.from(writeEvidence(evidence))
    try {
      // A write to a disk that is almost full can be short without an error.
      for (let done = 0; done < bytes.length; )
        done += (await to.write(bytes, done, bytes.length - done, at + done)).bytesWritten
      await to.truncate(at + bytes.length)
    } catch (fault) {
      await to.truncate(at)
      throw fault
    }
    start = at
    end = at + bytes.length
  }
  function withoutRepeat(evidence: EvidenceBundle): EvidenceBundle {
    const { sha256, document } = evidence.provider_evidence ?? {}
    if (sha256 === undefined || document === undefined) return evidence
    return documents.has(sha256) ? { ...evidence, provider_evidence: { sha256 } } : evidence
  }

  return {
    async add(evidence: EvidenceBundle): Promise<void> {
      file ??= await open(isPart ? part : path, 'w', 0o600)
      const line = withoutRepeat(evidence)
      await writeLine(file, line, end)
      last = line
      const { sha256, document } = line.provider_evidence ?? {}
      if (sha256 !== undefined && document !== undefined) documents.set(sha256, document.length)
      count += 1
      if (isPart && count === written) {
        await file.sync()
        await rename(part, path)
        isPart = false
      }
    },
    documentsSize: () => [...documents.values()].reduce((sum, size) => sum + size, 0),
    /** The last call states the requests without a proven answer. */
    async close(lost: CallSession['unanswered']): Promise<void> {
      await using closing = file
      if (closing !== null && last !== null && lost.length > 0)
        await writeLine(closing, withUnanswered(last, lost), start)
      await closing?.sync()
      if (isPart) await rm(part, { force: true })
    },
  }
}

function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}
