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

/** How often the file is looked at, milliseconds. */
const RELEASES_POLL_MS = 1_000

/** The releases that the operator accepts, as the newest list says that could be read. */
export type AcceptedReleases = {
  /**
   * Each with its window and revocation; what is accepted when is for acceptedMeasurements to say.
   * Null: any code is.
   */
  entries(): readonly ReleaseEntry[] | null
  /** Calls back after a newer list was taken. */
  onChange(listener: () => void): void
  /**
   * Reads the file again. A file that cannot be taken is logged, and the list that there was stays.
   * Never rejects.
   */
  reload(): Promise<void>
  /** Ends the watch of the file, and of SIGHUP. */
  stop(): void
}

/**
 * Gives why an enclave whose document has these facts may not be used now, in a sentence; null when
 * its measurements are those of a release that is accepted both now and at the document's own time:
 * the first is the operator's rule, the second is what readers of its records go by. `nowMs` is
 * Unix milliseconds.
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

/** Notes for administrators that a list was taken into use while the gateway runs. */
export type RecordReleases = (facts: {
  readonly file: string
  readonly issued_at: string
  readonly releases: number
}) => Promise<void>

/**
 * Gives the releases that the configuration accepts. Without a list any code is accepted, which
 * production is warned of, at the start and on SIGHUP. It does not refuse that: what holds the
 * operator to a release is that customers check measurements themselves, and a first deployment has
 * no signed list yet. Rejects with StartFailure.
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
 * Reads the signed list, and again whenever the file changes, and on SIGHUP. Rejects with Error
 * when the file cannot be read, has another form, or is not signed by one of the keys: the message
 * says which. Does NOT notice, in a process that was restarted, that the file is older than a list
 * that was read before.
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
    // Revoked measurements are refused, also when that cannot be recorded.
    await recordReleases({
      file,
      issued_at: list.issued_at,
      releases: list.releases.length,
    }).catch((error) => log.error({ err: error }, 'that releases were read is not noted'))
  }

  // By its times and size: a notice of the file system is lost where the file is replaced, or
  // mounted.
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

/** Calls back on SIGHUP, which ends no process that listens to it. Gives what ends that. */
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
