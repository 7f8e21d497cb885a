import { decodeBase64, encodeBase64 } from '#attestation/bytes.ts'
import { decodeUtf8 } from '#attestation/json/decode-utf8.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { type FormPolicy, NO_POLICY } from '../verify/job.ts'

export type Held = {
  readonly own: FormPolicy
  /** The page where the reader last changed the policy. */
  readonly place: string
  /** True if the reader accepted some of the policy from a link. */
  readonly isLinked: boolean
  /** What a development gateway states about its own enclaves. Null for any other gateway. */
  readonly development: FormPolicy | null
  readonly isDevelopmentRefused: boolean
}

export const NOTHING_HELD: Held = {
  own: NO_POLICY,
  place: '',
  isLinked: false,
  development: null,
  isDevelopmentRefused: false,
}

/** The policy that pages use for their checks. */
export type InForce = {
  readonly kind: 'none' | 'own' | 'development'
  readonly policy: FormPolicy
}

/**
 * The statements of a development gateway are in force only while the reader has not stated which
 * enclaves to expect. The reader's other demands then apply too.
 */
export function inForceOf({ own, development, isDevelopmentRefused }: Held): InForce {
  if (development !== null && !isDevelopmentRefused && !saysWhich(own)) {
    const { revocationLists, providers, outcomes, nonce, time, at, maxAge } = own
    return {
      kind: 'development',
      policy: {
        ...development,
        revocationLists,
        providers,
        outcomes,
        nonce,
        time,
        at,
        maxAge,
      },
    }
  }
  return { kind: summaryOf(own).length === 0 ? 'none' : 'own', policy: own }
}

/** True if the policy names code, configurations or roots. */
function saysWhich(given: FormPolicy): boolean {
  return (
    given.anyMeasurement ||
    given.allowDebug ||
    [given.releases, given.configurationFiles, given.roots].some(({ length }) => length > 0) ||
    [given.releaseKeys, given.measurements, given.configurations, given.rootText].some(
      (text) => text.trim() !== '',
    )
  )
}

export function summaryOf(given: FormPolicy): readonly string[] {
  const keys = countLines(given.releaseKeys)
  const sets = given.measurements.split(/\n[ \t]*\n/).filter((set) => set.trim() !== '').length
  const configurations = countLines(given.configurations) + given.configurationFiles.length
  const roots = given.roots.length + (given.rootText.trim() === '' ? 0 : 1)
  const isDocumentBound =
    given.time !== 'now' || given.nonce.trim() !== '' || given.maxAge.trim() !== ''
  return [
    counted(given.releases.length, 'release file'),
    counted(keys, 'release key'),
    given.releaseSigners.trim() === '' ? null : 'a number of signers',
    counted(sets, 'set of measurements', 'sets of measurements'),
    given.anyMeasurement ? 'any code' : null,
    given.allowDebug ? 'debug mode accepted' : null,
    counted(configurations, 'boot configuration'),
    roots === 0 ? null : 'own roots',
    counted(given.revocationLists.length, 'revocation list'),
    given.providers.trim() === '' ? null : 'providers',
    given.outcomes.length === 0 ? null : 'cut answers accepted',
    isDocumentBound ? 'conditions for a document alone' : null,
  ].filter((words) => words !== null)
}

function countLines(text: string): number {
  return text.split(/[\n,]/).filter((line) => line.trim() !== '').length
}

function counted(count: number, one: string, several = `${one}s`): string | null {
  return count === 0 ? null : `${count} ${count === 1 ? one : several}`
}

/** The text of a file, or its bytes if it is not text. */
type KeptFile = { readonly name: string; readonly text?: string; readonly base64?: string }

const FILES = ['releases', 'configurationFiles', 'roots', 'revocationLists'] as const

/**
 * Encodes the policy that outlives the page. The policy of a development gateway is
 * left out, because the page fetches them again.
 */
export async function writeHeld(held: Held): Promise<string> {
  const { own, place, isLinked, isDevelopmentRefused } = held
  const files = await Promise.all(
    FILES.map(async (name) => [name, await Promise.all(own[name].map(keepFile))] as const),
  )
  const written = { ...own, ...Object.fromEntries(files) }
  return JSON.stringify({ own: written, place, isLinked, isDevelopmentRefused })
}

async function keepFile(file: File): Promise<KeptFile> {
  const { name } = file
  const bytes = new Uint8Array(await file.arrayBuffer())
  try {
    return { name, text: decodeUtf8(bytes) }
  } catch (fault) {
    if (fault instanceof JsonError) return { name, base64: encodeBase64(bytes) }
    throw fault
  }
}

/** Parses a text that writeHeld wrote. Any other text gives no policy. */
export function readHeld(text: string): Held {
  try {
    const { own, place, isLinked, isDevelopmentRefused } = JSON.parse(text)
    const files = FILES.map((name) => [name, own[name].map(fileOf)] as const)
    const read: FormPolicy = { ...NO_POLICY, ...own, ...Object.fromEntries(files) }
    const isForm = Object.entries(NO_POLICY).every(
      ([name, value]) => typeof read[name as keyof FormPolicy] === typeof value,
    )
    return isForm && Array.isArray(read.outcomes)
      ? {
          own: read,
          place: String(place),
          isLinked: isLinked === true,
          development: null,
          isDevelopmentRefused: isDevelopmentRefused === true,
        }
      : NOTHING_HELD
  } catch {
    // Another version of this page wrote the text.
    return NOTHING_HELD
  }
}

function fileOf({ name, text, base64 }: KeptFile): File {
  return new File([text ?? Uint8Array.from(decodeBase64(base64 ?? ''))], name)
}
