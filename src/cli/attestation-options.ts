import { type Command, InvalidArgumentError } from 'commander'
import { decodeHex } from '../../attestation/bytes.ts'
import { PCR_BYTES, PCRS_MAX } from '../../attestation/nitro/document.ts'
import type { AttestationPolicy } from '../../attestation/nitro/policy.ts'
import { parseRoots } from '../../attestation/nitro/roots.ts'
import { ownMembers } from '../../attestation/own-members.ts'
import { CliError, EXIT_CODES } from './exit-codes.ts'
import { readSource } from './read-source.ts'
import { addReleaseOptions, type ReleaseOptions, readExpectedReleases } from './release/release-options.ts'
import { addRevocationOption, type RevocationOptions } from './revocation/read-lists.ts'

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
    .option('--root <file>', "trust this root (PEM or DER) instead of AWS's; may be repeated", collectText)
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

function collectText(text: string, before: readonly string[] = []): readonly string[] {
  return [...before, text]
}
