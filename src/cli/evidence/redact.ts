import { DEMANDS_MEMBER, NONCE_FORM } from '#attestation/demands.ts'
import {
  type EvidenceBundle,
  type RedactablePart,
  redactBundle,
  redactedParts,
} from '#attestation/evidence/bundle.ts'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import { writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { type JsonObject, memberAt } from '#attestation/json/value.ts'
import { printable } from '#attestation/report/printable.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { listFiles, readSource, writeOutput } from '../files.ts'
import { readEvidenceFile } from './read-evidence.ts'

export type RedactOptions = {
  readonly request?: boolean
  readonly response?: boolean
  readonly output?: string
}

/** Throws CliError if a part cannot be removed. */
export async function redactFiles(
  sources: readonly string[],
  options: RedactOptions,
): Promise<void> {
  const parts = partsOf(options)
  const calls: EvidenceBundle[] = []
  for (const file of await listFiles(sources))
    calls.push(...readEvidenceFile(await readSource(file), printable(file), EXIT_CODES.usage))
  for (const call of calls) checkWhole(call, parts)
  const redacted = calls.map((call) =>
    redactBundle(call, {
      request: parts.includes('request'),
      response: parts.includes('response'),
    }),
  )
  await writeOutput(writeEvidenceLines(redacted), options.output)
  const warnings = [
    ...parts.map((part) => LOST[part]),
    ...calls.flatMap((call) => guessableParts(call, parts)),
  ]
  process.stderr.write([...new Set(warnings)].map((line) => `${line}\n`).join(''))
}

function partsOf({ request = false, response = false }: RedactOptions): readonly RedactablePart[] {
  if (!request && !response)
    throw new CliError('say what to leave out: --request, --response', EXIT_CODES.usage)
  return [...(request ? (['request'] as const) : []), ...(response ? (['response'] as const) : [])]
}

/**
 * Throws if a part was already removed. Throws if a part is not the signed part, because the
 * evidence stays invalid after the part's removal.
 */
function checkWhole({ record, events }: EvidenceBundle, parts: readonly RedactablePart[]): void {
  const gone = redactedParts(record).find(
    (part) => parts.includes(part) && (part === 'request' || events === undefined),
  )
  if (gone !== undefined)
    throw new CliError(`this evidence already has no ${gone}: there is nothing to redact`)
  const withheld = {
    ...('request' in record ? {} : { request: record.request_hash }),
    ...('response' in record ? {} : { response: record.response_hash }),
  }
  const { checks } = verifyRecord(record, { withheld })
  const failed = parts.find((part) =>
    checks.some(({ name, outcome }) => name === `${part} hash` && outcome === 'failed'),
  )
  if (failed !== undefined)
    throw new CliError(
      `the ${failed} is not the ${failed} that was signed: the evidence stays invalid without it`,
    )
}

/** A reader can guess these parts and test the guesses against the hashes. */
function guessableParts(
  { record }: EvidenceBundle,
  parts: readonly RedactablePart[],
): readonly string[] {
  const isSalted = 'request' in record && hasNonce(record.request)
  return parts
    .filter((part) => part !== 'request' || !isSalted)
    .map((part) => `Warning: ${GUESSABLE[part]} Anyone can try guesses against its hash.`)
}

/** Returns true if the request has a nonce that is too long to guess (attestation/formats.md). */
function hasNonce(request: JsonObject): boolean {
  const nonce = memberAt(request, DEMANDS_MEMBER, 'nonce')
  return typeof nonce === 'string' && NONCE_FORM.test(nonce)
}

const GUESSABLE: Readonly<Record<RedactablePart, string>> = {
  request: 'the request has no nonce from its caller (affidavit.nonce), so its hash has no salt.',
  response:
    'the only salt of a response is the id that its provider gave it; the nonce of a request ' +
    'does not cover it.',
}

/** The checks that are impossible without a part (attestation/evidence/formats.md, Redaction). */
const LOST: Readonly<Record<RedactablePart, string>> = {
  request: lost('request', 'request hash', 'model that was requested'),
  response: lost('response', 'response hash', 'model that answered'),
}

function lost(part: RedactablePart, name: BundleCheckName, model: string): string {
  return (
    `Without the ${part}, two checks are no longer possible: "${name}" (that a text is the ` +
    `${part} of this completion), and the receipt's ${model}.`
  )
}
