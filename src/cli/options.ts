import { type Command, InvalidArgumentError } from 'commander'
import { decodeHex } from '#attestation/bytes.ts'
import { PCR_BYTES, PCRS_MAX } from '#attestation/nitro/document.ts'
import { OUTCOMES, type Receipt } from '#attestation/receipt.ts'
import { SIGNATURES_MAX } from '#attestation/release/release-signatures.ts'
import { isUrl } from './files.ts'

// This file loads little, because every command loads it. Other modules read the files that options
// name (expected-evidence.ts, accepted-releases.ts, gateway-access.ts).

export type AttestationOptions = ReleaseOptions & {
  /** The file policy.json. */
  readonly policy?: string
  readonly pcr?: ReadonlyMap<number, Uint8Array>
  readonly anyMeasurement?: boolean
  readonly allowDebug?: boolean
  readonly root?: readonly string[]
  /** Files or URLs of revocation lists. */
  readonly crl?: readonly string[]
}

export type ReleaseOptions = {
  readonly release?: readonly string[]
  readonly releaseKey?: readonly string[]
  readonly releaseSigners?: number
}

export type BundleOptions = AttestationOptions & {
  readonly configuration?: readonly string[]
  readonly rpc?: string
  readonly confirmations?: number
  readonly allowOutcome?: readonly ReceiptOutcome[]
}

type ReceiptOutcome = Receipt['outcome']

export type GatewayAccessOptions = { readonly url?: string; readonly key?: string }

export const TRUSTED = 'Whom you trust:'

export const POLICY_HELP =
  'policy.json: the enclaves and the providers that you trust (`affidavit policy` makes it); ' +
  'never from the gateway'

export function addAttestationOptions(command: Command): Command {
  command
    .optionsGroup(TRUSTED)
    .option('--policy <file>', POLICY_HELP)
    .option('--pcr <index=hex>', 'accepted measurement; every given one must match', collectPcr)
    .option('--any-measurement', 'accept any code in the enclave')
    .option('--allow-debug', 'accept an enclave in debug mode, whose memory its host can read')
    .option(
      '--root <file>',
      "trust this root (PEM or DER) instead of AWS's; may be repeated",
      collectText,
    )
    .option(
      '--crl <file|url>',
      'refuse certificates in this revocation list (DER or PEM, verified against the chain); may be repeated',
      collectText,
    )
    .option(
      '--release <file|url>',
      'accept this signed release, or the releases of this signed list; may be repeated',
      collectText,
    )
  return addReleaseTrustOptions(command)
}

export function addReleaseTrustOptions(command: Command): Command {
  return command
    .optionsGroup(TRUSTED)
    .option(
      '--release-key <key|file>',
      'key that signs releases: 64 hex digits, or a file with them; may be repeated',
      collectText,
    )
    .option(
      '--release-signers <count>',
      'how many of the keys must have signed (default: 1)',
      parseSignerCount,
    )
}

export function addBundleOptions(command: Command): Command {
  return addAttestationOptions(command)
    .option(
      '--configuration <digest|file>',
      'accepted boot configuration: its SHA-256, or its JSON file; never from the gateway; may be repeated',
      collectText,
    )
    .optionsGroup('The chain:')
    .option(
      '--rpc <url>',
      'JSON-RPC endpoint of the chain, to look up the block of the anchor',
      parseRpcUrl,
    )
    .option(
      '--confirmations <count>',
      'how many blocks deep the anchor must be, with --rpc',
      parseConfirmations,
    )
    .optionsGroup('What is enough:')
    .option(
      '--allow-outcome <outcomes>',
      `also accept answers that were cut: ${CUT_OUTCOMES.join(', ')}, separated by commas`,
      parseOutcomes,
    )
}

export function addGatewayOptions(command: Command): Command {
  command.optionsGroup('Which gateway:')
  const about = "gateway's base URL (default: AFFIDAVIT_URL, or http://127.0.0.1:3000)"
  return addKeyOption(command.option('--url <url>', about, parseBaseUrl))
}

export function addKeyOption(command: Command): Command {
  return command.option(
    '--key <key>',
    'API key (better: in AFFIDAVIT_API_KEY, which goes to AFFIDAVIT_URL alone)',
  )
}

/** A hash has 64 hex digits, with or without 0x. A file with such a name needs `./` before it. */
export function isHash(source: string): boolean {
  return /^(0x)?[0-9a-fA-F]{64}$/.test(source)
}

/** Lower case, without 0x, as in records. */
export function hashOf(source: string): string {
  return source.toLowerCase().replace(/^0x/, '')
}

/** Returns the URL without a query. */
export function parseBaseUrl(text: string): string {
  if (!isUrl(text) || !URL.canParse(text)) throw new InvalidArgumentError('expected an http(s) URL')
  const { search, hash } = new URL(text)
  if (search !== '' || hash !== '')
    throw new InvalidArgumentError('expected a base URL, without ? and #')
  return text
}

/** Error messages do not contain the URL, because it may contain a key. */
export function parseRpcUrl(text: string): string {
  if (isUrl(text) && URL.canParse(text)) return text
  throw new InvalidArgumentError('expected an http(s) URL')
}

/** The time of fifteen blocks of Ethereum. */
export const TRANSACTION_TIMEOUT_SECONDS = 180

/** One hour. Any timer can wait this long. */
const TIMEOUT_SECONDS_MAX = 3600

/** Throws InvalidArgumentError. */
export function parseSeconds(text: string): number {
  const seconds = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (seconds >= 1 && seconds <= TIMEOUT_SECONDS_MAX) return seconds
  throw new InvalidArgumentError(
    `expected a whole number of seconds from 1 to ${TIMEOUT_SECONDS_MAX}`,
  )
}

/** Throws InvalidArgumentError. */
export function parseUnixSeconds(text: string): Date {
  if (!/^\d{1,12}$/.test(text)) throw new InvalidArgumentError('expected whole seconds since 1970')
  return new Date(Number(text) * 1000)
}

export function collectText(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}

const PCR_FORM = new RegExp(`^(?:PCR)?(\\d{1,2})=(?:0x)?([0-9a-fA-F]{${2 * PCR_BYTES}})$`)

/** Adds a register to `before`. Throws InvalidArgumentError, also if `before` has the register. */
export function collectPcr(
  text: string,
  before: ReadonlyMap<number, Uint8Array> = new Map(),
): ReadonlyMap<number, Uint8Array> {
  const [, index = '', hex = ''] = PCR_FORM.exec(text) ?? []
  if (hex === '' || Number(index) >= PCRS_MAX)
    throw new InvalidArgumentError(
      `expected INDEX=HEX with an index below ${PCRS_MAX} and ${PCR_BYTES} bytes`,
    )
  if (before.has(Number(index)))
    throw new InvalidArgumentError(`expected PCR ${Number(index)} once`)
  return new Map([...before, [Number(index), decodeHex(hex)]])
}

function parseSignerCount(text: string): number {
  const count = /^\d{1,2}$/.test(text) ? Number(text) : 0
  if (count >= 1 && count <= SIGNATURES_MAX) return count
  throw new InvalidArgumentError(`expected a whole number from 1 to ${SIGNATURES_MAX}`)
}

function parseConfirmations(text: string): number {
  if (!/^\d{1,9}$/.test(text) || Number(text) === 0)
    throw new InvalidArgumentError('expected a whole number from 1')
  return Number(text)
}

const CUT_OUTCOMES = OUTCOMES.filter((outcome) => outcome !== 'complete')

function parseOutcomes(
  text: string,
  before: readonly ReceiptOutcome[] = [],
): readonly ReceiptOutcome[] {
  const outcomes = text
    .split(',')
    .map((word) => CUT_OUTCOMES.find((outcome) => outcome === word.trim()))
  if (outcomes.includes(undefined))
    throw new InvalidArgumentError(`expected ${CUT_OUTCOMES.join(', ')}, separated by commas`)
  return [...before, ...outcomes.flatMap((outcome) => outcome ?? [])]
}
