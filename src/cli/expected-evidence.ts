import { type Command, InvalidArgumentError, Option } from 'commander'
import { decodeHex } from '../../attestation/bytes.ts'
import { FormatError } from '../../attestation/errors.ts'
import {
  digestBootConfiguration,
  parseBootConfiguration,
} from '../../attestation/evidence/boot-configuration.ts'
import type { BundlePolicy } from '../../attestation/evidence/policy.ts'
import { JsonError } from '../../attestation/json/json-error.ts'
import { parseExactJson } from '../../attestation/json/parse-strict.ts'
import { isJsonObject } from '../../attestation/json/value.ts'
import { PCR_BYTES, PCRS_MAX } from '../../attestation/nitro/document.ts'
import type { AttestationPolicy } from '../../attestation/nitro/policy.ts'
import { parseRoots } from '../../attestation/nitro/roots.ts'
import { ownMembers } from '../../attestation/own-members.ts'
import { OUTCOMES, type Receipt } from '../../attestation/receipt.ts'
import { CliError, EXIT_CODES } from './exit-codes.ts'
import { isUrl, readSource } from './files.ts'
import { printable } from './printable.ts'
import { addReleaseOptions, type ReleaseOptions, readExpectedReleases } from './release/accepted-releases.ts'
import { type ParsedList, parseLists, RevocationListError } from './revocation/revocation-list.ts'

/** What a user demands of an attestation document, as commander gives it. */
export type AttestationOptions = ReleaseOptions &
  RevocationOptions & {
    readonly pcr?: ReadonlyMap<number, Uint8Array>
    readonly anyMeasurement?: boolean
    readonly allowDebug?: boolean
    readonly root?: readonly string[]
  }

/** Adds the options that say what is demanded of an attestation document. */
export function addAttestationOptions(command: Command): Command {
  command
    .option('--pcr <index=hex>', 'expected measurement; all that are given must be found', collectPcr)
    .option('--any-measurement', 'accept whatever code runs in the enclave')
    .option('--allow-debug', 'accept an enclave in debug mode, whose memory its host can read')
    .option('--root <file>', "trust this root (PEM or DER) instead of AWS's; may be repeated", collectText2)
  return addReleaseOptions(addRevocationOption(command))
}

/** Whether any of the options was given. */
export function demandsAttestation(options: AttestationOptions): boolean {
  const { pcr, anyMeasurement, allowDebug, root, release, crl } = ownMembers(options)
  return [pcr, anyMeasurement, allowDebug, root, release, crl].some((option) => option !== undefined)
}

/**
 * Gives the policy that the options say, reading the root files. Without expected measurements it refuses every document,
 * unless any is accepted. Throws CliError for files that are no certificates, and for releases that are not signed.
 */
export async function readAttestationPolicy(given: AttestationOptions): Promise<AttestationPolicy> {
  const options = ownMembers(given)
  const said = [options.pcr, options.anyMeasurement, options.release].filter((option) => option !== undefined)
  if (said.length > 1)
    throw new CliError('expected one of --pcr, --release and --any-measurement', EXIT_CODES.usage)
  const releases = await readExpectedReleases(options)
  const roots = await Promise.all((options.root ?? []).map(readRoots))
  return {
    measurements: options.anyMeasurement ? 'any' : options.pcr === undefined ? [] : [options.pcr],
    ...(releases === undefined ? {} : { releases }),
    allowDebug: options.allowDebug ?? false,
    ...(roots.length > 0 ? { roots: roots.flat() } : {}),
  }
}

const ROOT_FILE_BYTES_MAX = 1024 * 1024

async function readRoots(path: string): Promise<readonly Uint8Array[]> {
  const bytes = await readSource(path, { apiKey: null, stdin: process.stdin, bytesMax: ROOT_FILE_BYTES_MAX })
  try {
    return parseRoots(bytes)
  } catch (fault) {
    const reason = fault instanceof Error ? fault.message : 'unreadable'
    throw new CliError(`--root ${path}: ${reason}`, EXIT_CODES.usage)
  }
}

const PCR_FORM = new RegExp(`^(\\d{1,2})=(?:0x)?([0-9a-fA-F]{${2 * PCR_BYTES}})$`)

function collectPcr(
  text: string,
  before: ReadonlyMap<number, Uint8Array> = new Map(),
): ReadonlyMap<number, Uint8Array> {
  const [, index = '', hex = ''] = PCR_FORM.exec(text) ?? []
  if (hex === '' || Number(index) >= PCRS_MAX)
    throw new InvalidArgumentError(
      `expected INDEX=HEX with an index below ${PCRS_MAX} and ${PCR_BYTES} bytes`,
    )
  if (before.has(Number(index))) throw new InvalidArgumentError(`expected PCR ${Number(index)} once`)
  return new Map([...before, [Number(index), decodeHex(hex)]])
}

function collectText2(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

/** What a user demands of an evidence bundle, as commander gives it. */
export type BundleOptions = AttestationOptions & {
  readonly configuration?: readonly string[]
  readonly rpc?: string
  readonly confirmations?: number
  readonly require?: 'verified'
  readonly allowOutcome?: readonly Outcome[]
}

/** How a cut answer ended, as receipts call it. */
export type Outcome = Receipt['outcome']

/** Adds the options that say what is demanded of an evidence bundle, beside those of its attestation document. */
export function addBundleOptions(command: Command): Command {
  return addAttestationOptions(command)
    .option(
      '--configuration <digest|file>',
      'expected boot configuration: its SHA-256, or a file of it as JSON; never from the gateway; may be repeated',
      collectText,
    )
    .option('--rpc <url>', "JSON-RPC endpoint of the chain, to look the anchor's block up", parseRpcUrl)
    .option('--confirmations <count>', 'blocks that the anchor must be deep, with --rpc', parseCount)
    .addOption(new Option('--require <verdict>', 'fail on any less than this').choices(['verified']))
    .option(
      '--allow-outcome <outcomes>',
      `take answers that were cut, too: ${CUT_OUTCOMES.join(', ')}, separated by commas`,
      parseOutcomes,
    )
}

/** Those that no complete answer has. */
const CUT_OUTCOMES = OUTCOMES.filter((outcome) => outcome !== 'complete')

function parseOutcomes(text: string, before: readonly Outcome[] = []): readonly Outcome[] {
  const outcomes = text.split(',').map((word) => CUT_OUTCOMES.find((outcome) => outcome === word.trim()))
  if (outcomes.includes(undefined))
    throw new InvalidArgumentError(`expected ${CUT_OUTCOMES.join(', ')}, separated by commas`)
  return [...before, ...outcomes.flatMap((outcome) => outcome ?? [])]
}

/** The options of these that only a bundle can be checked by, as they are written. */
export function bundleOnlyOptions(options: BundleOptions): readonly string[] {
  const { configuration, rpc, confirmations, require } = ownMembers(options)
  return Object.entries({ configuration, rpc, confirmations, require })
    .filter(([, value]) => value !== undefined)
    .map(([name]) => `--${name}`)
}

/**
 * Gives the policy that the options say, reading the files they name. What is not given is not checked;
 * `--any-measurement` leaves the code unchecked too. Throws CliError for files that are not what they should be.
 */
export async function readBundlePolicy(options: BundleOptions): Promise<BundlePolicy> {
  return await completeBundlePolicy(await readAttestationPolicy(options), options)
}

/** As readBundlePolicy, of options whose attestation policy was read already. */
export async function completeBundlePolicy(
  attestation: AttestationPolicy,
  options: BundleOptions,
): Promise<BundlePolicy> {
  const { measurements, releases, roots, allowDebug } = ownMembers(attestation)
  const { configuration = [], confirmations, allowOutcome } = ownMembers(options)
  const configurations = await Promise.all(configuration.map(readConfigurationDigest))
  return {
    ...(measurements === 'any' ? {} : { measurements }),
    ...(releases === undefined ? {} : { releases }),
    ...(roots === undefined ? {} : { roots }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
    ...(confirmations === undefined ? {} : { confirmationsMin: confirmations }),
    ...(allowOutcome === undefined ? {} : { outcomes: allowOutcome }),
    configurations,
  }
}

/** Gives the URL of a chain's endpoint as it was written. The message does not repeat it: it may hold a key. */
export function parseRpcUrl(text: string): string {
  if (isUrl(text) && URL.canParse(text)) return text
  throw new InvalidArgumentError('expected an http(s) URL')
}

function parseCount(text: string): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) === 0)
    throw new InvalidArgumentError('expected a whole number from 1')
  return Number(text)
}

/** Gathers the values of an option that may be repeated. */
export function collectText(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

/** Largest file of a boot configuration, bytes. */
export const CONFIGURATION_BYTES_MAX = 1024 * 1024

/**
 * Gives the digest (32 bytes) of an expected boot configuration: written as 64 hex digits, or
 * computed from a file that holds the configuration as JSON. A file whose name is 64 hex digits
 * needs `./` before it. Throws CliError for anything else, and for a URL: what a gateway says its
 * configuration is, is no expectation of it.
 */
export async function readConfigurationDigest(text: string): Promise<Uint8Array> {
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(text)) return decodeHex(text)
  if (isUrl(text))
    throw new CliError(
      `--configuration: expected a digest or a file, got a URL: a gateway's own word is no expectation of it`,
      EXIT_CODES.usage,
    )
  const bytes = await readSource(text, {
    apiKey: null,
    stdin: process.stdin,
    bytesMax: CONFIGURATION_BYTES_MAX,
  })
  try {
    const configuration = parseExactJson(bytes)
    parseBootConfiguration(configuration)
    return digestBootConfiguration(isJsonObject(configuration) ? configuration : {})
  } catch (fault) {
    if (!(fault instanceof JsonError) && !(fault instanceof FormatError)) throw fault
    throw new CliError(
      `--configuration ${printable(text)}: expected a boot configuration as JSON: ${fault.message}`,
      EXIT_CODES.usage,
    )
  }
}

/** Largest file of lists, bytes: some 100,000 certificates. */
export const LISTS_BYTES_MAX = 4 * 1024 * 1024
/** Longest that a list may take to be fetched, milliseconds. */
const LISTS_TIMEOUT_MS = 30_000

/** Where revocation lists are, as commander gives it. */
export type RevocationOptions = { readonly crl?: readonly string[] }

/** Adds the option that names revocation lists. */
export function addRevocationOption(command: Command): Command {
  return command.option(
    '--crl <file|url>',
    'refuse certificates in this revocation list (DER or PEM, verified against the chain); may be repeated',
    (text: string, before: readonly string[] = []) => [...before, text],
  )
}

/**
 * Gives the lists that the options name, by file or http(s) URL, made by `nowMs`. Throws CliError,
 * RevocationListError.
 */
export async function readRevocationLists(
  options: RevocationOptions,
  nowMs: number,
): Promise<readonly ParsedList[]> {
  const { crl: sources = [] } = ownMembers(options)
  const given = { apiKey: null, stdin: process.stdin, bytesMax: LISTS_BYTES_MAX, timeoutMs: LISTS_TIMEOUT_MS }
  const files = await Promise.all(
    sources.map(async (source) => parseLists(await readSource(source, given), source)),
  )
  const lists = files.flat()
  const early = lists.find(({ thisUpdateMs }) => thisUpdateMs > nowMs)
  if (early === undefined) return lists
  const begins = new Date(early.thisUpdateMs).toISOString()
  const message = `expected a list that is in force, got one that begins ${begins}`
  throw new RevocationListError('not_yet_valid', { source: early.source, message })
}
