import { unwatchFile, watchFile } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { encodeHex } from '#attestation/bytes.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { AttestationFacts } from '#attestation/nitro/facts.ts'
import { RELEASE_FILE_BYTES_MAX } from '#attestation/release/release.ts'
import {
  checkNotRolledBack,
  matchRelease,
  parseSignedReleaseList,
  type ReleaseEntry,
  type ReleaseList,
} from '#attestation/release/release-list.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import { millisecondsOf, parseReleaseKey } from '#attestation/release/release-signatures.ts'
import { verifyReleaseList } from '#attestation/release/verify-release.ts'
import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { StartFailure } from '../runtime/starting.ts'
import type { ReleasesConfig } from './settings.ts'

const RELEASES_POLL_MS = 1_000

/** The releases of the newest readable list. */
export type AcceptedReleases = {
  /**
   * The entries have windows and revocations. acceptedMeasurements selects the entries that are
   * accepted at a given time. Null: any code is accepted.
   */
  entries(): readonly ReleaseEntry[] | null
  /** Calls `listener` each time that `reload` has read a list. */
  onChange(listener: () => void): void
  /** Logs an unusable file and keeps the earlier list. Never rejects. */
  reload(): Promise<void>
  /** False from an unusable file until the next usable one. */
  isCurrent(): boolean
  /** Stops watching the file and stops listening to SIGHUP. */
  stop(): void
}

/**
 * Returns the reason why an enclave with these facts may not be used now. Null if its release is
 * accepted now and was accepted at the document's time. Readers of the enclave's records check the
 * document's time, too. `nowMs` is Unix milliseconds.
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

/** Adds an entry to the admin log: a running gateway uses a new list. */
export type RecordReleases = (facts: {
  readonly file: string
  readonly issued_at: string
  readonly releases: number
}) => Promise<void>

/**
 * Without a list, any code is accepted, and production logs a warning at the start and on SIGHUP.
 * Production still starts, because a first deployment has no signed list yet. Rejects with
 * StartFailure.
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
  return {
    entries: () => null,
    onChange: () => undefined,
    reload: async () => undefined,
    isCurrent: () => true,
    stop,
  }
}

/**
 * Reads the signed list now, after each change of the file, and on SIGHUP. Rejects with an Error if
 * the file cannot be read, is malformed, or is not signed by one of the keys. After a restart of
 * the process, it does NOT notice that the file is older than a list that was read before.
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
  const listeners: (() => void)[] = []
  // The watch begins before the read, so that a change between the two is noticed. The file is
  // polled, because notifications are lost when the file is replaced or mounted.
  const look = () => void reading.then(reload, () => undefined)
  const reloads = createSerialQueue()
  watchFile(file, { interval: pollMs, persistent: false }, look)
  const reading = readAfterFirstLook(config)
  let list: ReleaseList
  let isCurrent = true
  try {
    list = await reading
  } catch (error) {
    unwatchFile(file, look)
    throw error
  }

  async function reload(): Promise<void> {
    if (!(await reloads.run(readAgain))) return
    for (const listener of listeners) listener()
    // Revoked measurements are refused even if the admin log gets no entry.
    await recordReleases({
      file,
      issued_at: list.issued_at,
      releases: list.releases.length,
    }).catch((error) => log.error({ err: error }, 'that releases were read is not noted'))
  }

  async function readAgain(): Promise<boolean> {
    try {
      const next = await readList(config)
      checkNotRolledBack(next, millisecondsOf(list.issued_at))
      list = next
      isCurrent = true
      log.info(
        { file, issued_at: list.issued_at, releases: list.releases.length },
        'accepted releases read',
      )
    } catch (error) {
      isCurrent = false
      log.error(
        { file, err: error },
        'accepted releases not read: those of the list before stay accepted',
      )
    }
    return isCurrent
  }

  const endHangup = onHangup(look)
  return {
    entries: () => list.releases,
    onChange: (listener) => void listeners.push(listener),
    reload,
    isCurrent: () => isCurrent,
    stop: () => {
      unwatchFile(file, look)
      endHangup()
    },
  }
}

/** Listens to SIGHUP, which then does not end the process. The returned function stops this. */
function onHangup(listener: () => void): () => void {
  process.on('SIGHUP', listener)
  return () => void process.off('SIGHUP', listener)
}

/** watchFile compares with its own first look, which it asked for before this one. */
async function readAfterFirstLook(config: ReleasesConfig): Promise<ReleaseList> {
  await stat(config.file)
  return readList(config)
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
