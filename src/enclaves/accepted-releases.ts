import { unwatchFile, watchFile } from 'node:fs'
import { open } from 'node:fs/promises'
import { encodeHex } from '../../attestation/bytes.ts'
import { parseExactJson } from '../../attestation/json/parse-strict.ts'
import type { AttestationFacts } from '../../attestation/nitro/facts.ts'
import { RELEASE_FILE_BYTES_MAX } from '../../attestation/release/release.ts'
import {
  checkNotRolledBack,
  matchRelease,
  parseSignedReleaseList,
  type ReleaseEntry,
  type ReleaseList,
} from '../../attestation/release/release-list.ts'
import { nameRelease } from '../../attestation/release/release-name.ts'
import { millisecondsOf, parseReleaseKey } from '../../attestation/release/release-signatures.ts'
import { verifyReleaseList } from '../../attestation/release/verify-release.ts'
import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import type { ReleasesConfig } from './settings.ts'

/** How often the file is checked for changes, milliseconds. */
const RELEASES_POLL_MS = 1_000

/** The releases that the operator accepts, by the newest list that could be read. */
export type AcceptedReleases = {
  /**
   * Each entry has its window and its revocation; acceptedMeasurements decides what is accepted at
   * a given time. Null: any code is accepted.
   */
  entries(): readonly ReleaseEntry[] | null
  /** Calls back after a newer list is in use. */
  onChange(listener: () => void): void
  /**
   * Reads the file again. A file that cannot be used is logged, and the earlier list stays. Never
   * rejects.
   */
  reload(): Promise<void>
  /** Stops watching the file and SIGHUP. */
  stop(): void
}

/**
 * Gives in a sentence why an enclave with these facts of its document may not be used now. Gives
 * null when its measurements belong to a release that is accepted both now and at the document's
 * own time. The first is the operator's rule. The second is what readers of its records check.
 * `nowMs` is Unix milliseconds.
 */
export function findReleaseFault(
  { measurements: pcrs, timestampMs }: Pick<AttestationFacts, 'measurements' | 'timestampMs'>,
  entries: readonly ReleaseEntry[],
  nowMs: number,
): string | null {
  const atPresent = matchRelease({ pcrs, timestampMs: nowMs }, entries)
  if (atPresent.kind === 'unknown') {
    const image = pcrs.get(0)
    return `expected the measurements of an accepted release, got PCR0 ${image ? encodeHex(image) : 'none'}`
  }
  if (atPresent.kind === 'refused') return `expected an accepted release: ${atPresent.message}`
  const atDocument = matchRelease({ pcrs, timestampMs }, entries)
  return atDocument.kind === 'accepted'
    ? null
    : `expected a document made while ${nameRelease(atPresent.release)} is accepted, got a document of ${new Date(timestampMs).toISOString()}`
}

/** Records for administrators that a new list is in use while the gateway runs. */
export type RecordReleases = (facts: {
  readonly file: string
  readonly issued_at: string
  readonly releases: number
}) => Promise<void>

/**
 * Gives the releases that the configuration accepts. Without a list, any code is accepted;
 * production logs a warning about that, at the start and on SIGHUP. It is not refused, because a
 * first deployment has no signed list yet, and because customers check measurements themselves.
 * Rejects with StartFailure.
 */
export async function startReleases(
  config: ReleasesConfig | null,
  {
    isProduction,
    log,
    recordReleases,
  }: {
    readonly isProduction: boolean
    readonly log: Logger
    readonly recordReleases: RecordReleases
  },
): Promise<AcceptedReleases> {
  if (config !== null)
    return openAcceptedReleases(config, { log, recordReleases }).catch((error: unknown) => {
      throw new StartFailure(
        `enclave: ENCLAVE_RELEASES_FILE ${config.file}: ${asError(error).message}`,
      )
    })
  const warn = () =>
    log.warn({}, 'ENCLAVE_RELEASES_FILE is not set: enclaves are used with any code')
  const stop = isProduction ? onHangup(warn) : () => undefined
  if (isProduction) warn()
  return { entries: () => null, onChange: () => undefined, reload: async () => undefined, stop }
}

/**
 * Reads the signed list. Reads it again whenever the file changes, and on SIGHUP. Rejects with
 * Error when the file cannot be read, is malformed, or is not signed by one of the keys; the
 * message says which.
 *
 * Does NOT notice, in a process that was restarted, that the file is older than a list that was
 * read before.
 */
export async function openAcceptedReleases(
  config: ReleasesConfig,
  {
    log,
    pollMs = RELEASES_POLL_MS,
    recordReleases = async () => undefined,
  }: {
    readonly log: Logger
    readonly pollMs?: number
    readonly recordReleases?: RecordReleases | undefined
  },
): Promise<AcceptedReleases> {
  const { file } = config
  let list = await readList(config)
  const listeners: (() => void)[] = []

  async function reload(): Promise<void> {
    try {
      const next = await readList(config)
      checkNotRolledBack(next, millisecondsOf(list.issued_at))
      list = next
      log.info(
        { file, issued_at: list.issued_at, releases: list.releases.length },
        'accepted releases read',
      )
    } catch (error) {
      log.error(
        { file, err: error },
        'accepted releases not read: those of the list before stay accepted',
      )
      return
    }
    for (const listener of listeners) listener()
    // Revoked measurements are refused even when that cannot be recorded.
    await recordReleases({
      file,
      issued_at: list.issued_at,
      releases: list.releases.length,
    }).catch((error) => log.error({ err: error }, 'that releases were read is not noted'))
  }

  // Compares the file's times and size: file system notifications are lost when the file is
  // replaced or mounted.
  const look = () => void reload()
  watchFile(file, { interval: pollMs, persistent: false }, look)
  const endHangup = onHangup(look)
  return {
    entries: () => list.releases,
    onChange: (listener) => void listeners.push(listener),
    reload,
    stop: () => {
      unwatchFile(file, look)
      endHangup()
    },
  }
}

/**
 * Calls back on SIGHUP, which does not end a process that listens to it. Gives a function that
 * stops listening.
 */
function onHangup(listener: () => void): () => void {
  process.on('SIGHUP', listener)
  return () => void process.off('SIGHUP', listener)
}

async function readList({ file, keys }: ReleasesConfig): Promise<ReleaseList> {
  const signed = parseSignedReleaseList(parseExactJson(await readBounded(file)))
  return verifyReleaseList(signed, { keys: keys.map(parseReleaseKey) }).list
}

async function readBounded(file: string): Promise<Uint8Array> {
  await using handle = await open(file, 'r')
  const bytes = new Uint8Array(RELEASE_FILE_BYTES_MAX + 1)
  let length = 0
  for (;;) {
    const { bytesRead } = await handle.read(bytes, length, bytes.length - length)
    length += bytesRead
    if (bytesRead === 0) return bytes.subarray(0, length)
    if (length === bytes.length)
      throw new Error(`expected a list of at most ${RELEASE_FILE_BYTES_MAX} bytes in ${file}`)
  }
}
