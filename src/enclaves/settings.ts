import { resolve } from 'node:path'
import { z } from 'zod'
import { parseReleaseKey } from '#attestation/release/release-signatures.ts'
import { integer, listField, sockets, textField } from '../runtime/fields.ts'
import { type Environment, pickVariables } from '../runtime/read-settings.ts'

/** Each enclave needs a waiting connection, and one identity request per second. */
export const ENCLAVES_MAX = 32

export const ENCLAVE_FIELDS = {
  /**
   * Unix sockets of the enclaves, `unix:/path/to/socket`, comma-separated. Calls are spread over
   * these enclaves. `affidavit enclaves` adds, drains and removes enclaves while the gateway runs.
   * Default: an enclave process with a simulated security module.
   */
  ENCLAVE_URL: sockets({ itemsMax: ENCLAVES_MAX }).optional(),
  /**
   * Number of enclave processes that the gateway starts if ENCLAVE_URL is not set. More than one is
   * for trials. Default 1.
   */
  LOCAL_ENCLAVES: integer({ min: 1, max: 8 }).default(1),
  /**
   * Folder into which the enclaves that the gateway starts write each stream of a provider that
   * they refuse, as it came, for a report of the fault. It holds callers' content in the clear. Not
   * in production. Default: none is kept.
   */
  KEEP_REFUSED: textField.optional(),
  /**
   * Signed list of accepted releases (affidavit-releases/v1, attestation/release/README.md). An
   * enclave is used only while a release with its measurements is accepted. Otherwise, an enclave
   * in use is drained. The file is read again when it changes, and on SIGHUP. Default: any
   * measurements are used, with a warning in production. Needs RELEASE_KEY.
   */
  ENCLAVE_RELEASES_FILE: textField.optional(),
  /**
   * Public keys, 64 hex digits each, comma-separated. One of them must have signed the list of
   * releases.
   */
  RELEASE_KEY: listField({ itemsMax: 16, lengthMax: 64 }).optional(),
}

const schema = z.object(ENCLAVE_FIELDS)
type Settings = z.output<typeof schema>

export type EnclaveSource =
  /** The gateway starts these enclaves, and passes only these variables (enclave/config.ts). */
  | {
      readonly kind: 'local'
      readonly count: number
      readonly variables: Readonly<Record<string, string>>
      /** For the demo provider that is started with the enclaves (src/local/demo/config.ts). */
      readonly demoVariables: Readonly<Record<string, string>>
      /** Absolute path of the folder for refused streams. Null: none is kept. */
      readonly refusedFolder: string | null
    }
  | { readonly kind: 'remote'; readonly socketPaths: readonly string[] }

export type ReleasesConfig = {
  /** Absolute path. */
  readonly file: string
  /** Public keys, 64 lower-case hex digits each. */
  readonly keys: readonly string[]
}

/** An operator may set these variables of an enclave process. The gateway sets all others. */
const ENCLAVE_VARIABLES = [
  'PROVIDERS_FILE',
  'PROVIDER_CA_FILE',
  'CONNECT_TIMEOUT_MS',
  'FIRST_BYTE_TIMEOUT_MS',
  'IDLE_TIMEOUT_MS',
  'ANSWER_TIMEOUT_MS',
  'DRAIN_TIMEOUT_MS',
  'ANSWER_BYTES_MAX',
  'PENDING_BYTES_MAX',
  'ATTESTATION_RENEW_MS',
] as const

/** DEMO_HOST is missing here, because the enclave uses plain http only on loopback. */
const DEMO_VARIABLES = ['DEMO_PORT', 'DEMO_DELAY_MS', 'DEMO_REPLAY_FOLDER'] as const

export function enclaveOf(settings: Settings, environment: Environment): EnclaveSource {
  if (settings.ENCLAVE_URL !== undefined)
    return { kind: 'remote', socketPaths: settings.ENCLAVE_URL }
  return {
    kind: 'local',
    count: settings.LOCAL_ENCLAVES,
    variables: pickVariables(environment, ENCLAVE_VARIABLES),
    demoVariables: pickVariables(environment, DEMO_VARIABLES),
    refusedFolder: settings.KEEP_REFUSED === undefined ? null : resolve(settings.KEEP_REFUSED),
  }
}

/** Null if no file is configured. */
export function releasesOf({
  ENCLAVE_RELEASES_FILE: file,
  RELEASE_KEY: keys = [],
}: Pick<Settings, 'ENCLAVE_RELEASES_FILE' | 'RELEASE_KEY'>): ReleasesConfig | null {
  return file === undefined ? null : { file: resolve(file), keys }
}

export function enclaveFaults(given: Environment): readonly string[] {
  const { ENCLAVE_URL: url, KEEP_REFUSED: folder } = given
  const isKept = url !== undefined && folder !== undefined
  return [
    ...(isKept ? ['KEEP_REFUSED: expected only without ENCLAVE_URL, for development'] : []),
    ...releaseFaults(given),
  ]
}

function releaseFaults(given: Environment): readonly string[] {
  const { ENCLAVE_RELEASES_FILE: file, RELEASE_KEY: keys } = given
  if (file === undefined)
    return keys === undefined
      ? []
      : ['RELEASE_KEY: expected only together with ENCLAVE_RELEASES_FILE']
  if (keys === undefined) return ['RELEASE_KEY: expected together with ENCLAVE_RELEASES_FILE']
  const items = keys.split(',').map((key) => key.trim())
  return items.every(isReleaseKey)
    ? []
    : ['RELEASE_KEY: expected public keys of Ed25519, 64 lower-case hex digits each']
}

function isReleaseKey(text: string): boolean {
  try {
    parseReleaseKey(text)
    return true
  } catch {
    return false
  }
}
