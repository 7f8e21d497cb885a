import { type Command, InvalidArgumentError, Option } from 'commander'
import type { BundlePolicy } from '../../attestation/evidence/policy.ts'
import type { AttestationPolicy } from '../../attestation/nitro/policy.ts'
import { ownMembers } from '../../attestation/own-members.ts'
import { OUTCOMES, type Receipt } from '../../attestation/receipt.ts'
import {
  type AttestationOptions,
  addAttestationOptions,
  readAttestationPolicy,
} from './attestation-options.ts'
import { readConfigurationDigest } from './configuration-digest.ts'
import { isUrl } from './read-source.ts'

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
