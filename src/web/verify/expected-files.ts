import { decodeUtf8 } from '#attestation/json/decode-utf8.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import {
  DIGEST_FORM,
  POLICY_BYTES_MAX,
  type Policy,
  REGISTER_NAME,
  readEnclavesPolicy,
} from '#attestation/report/policy-file.ts'
import type { Filled, FormPolicy } from './job.ts'
import { PolicyFault } from './policy-fault.ts'

/** The kind is recognised from the file's content. */
export type ExpectedFile = { readonly name: string } & (
  | { readonly kind: 'policy' | 'measurements'; readonly value: JsonObject }
  | { readonly kind: 'release' | 'configuration' | 'roots'; readonly text: string }
)

/** For a file that may be a policy. */
export const EXPECTED_FILE_BYTES_MAX = POLICY_BYTES_MAX

const KIND_WORDS: Readonly<Record<ExpectedFile['kind'], string>> = {
  policy: 'policy',
  release: 'signed release',
  measurements: 'measurements',
  configuration: 'boot configuration',
  roots: 'root certificate',
}

/**
 * Finds the kind of a file. Does not check the file fully: the client or the page does this later.
 * Throws PolicyFault for a file of unknown kind.
 */
export function readExpectedFile(name: string, bytes: Uint8Array): ExpectedFile {
  const { text, json } = read(bytes)
  if (text?.trimStart().startsWith('-----BEGIN CERTIFICATE-----'))
    return { name, kind: 'roots', text }
  if (text === null || json === null)
    throw unfit(`${name} is not JSON, and not a certificate in PEM.`)
  const format = memberOf(json, 'format')
  if (typeof format === 'string' && format.startsWith('affidavit-release'))
    return { name, kind: 'release', text }
  if (isPolicy(json)) return { name, kind: 'policy', value: json }
  const value = registersOf(json)
  if (value !== null) return { name, kind: 'measurements', value }
  if (Object.hasOwn(json, 'providers')) return { name, kind: 'configuration', text }
  throw unfit(`${name} is not a policy, a release, measurements or a boot configuration.`)
}

/**
 * Of two files with the same name, the later is used. A policy replaces the form
 * fields that it fills. Throws PolicyFault like fillPolicy.
 */
export function addExpectedFile(own: FormPolicy, file: ExpectedFile): Partial<FormPolicy> {
  const added = (files: readonly File[], text: string) => [
    ...files.filter(({ name }) => name !== file.name),
    new File([text], file.name),
  ]
  switch (file.kind) {
    case 'release':
      return { releases: added(own.releases, file.text) }
    case 'configuration':
      return { configurationFiles: added(own.configurationFiles, file.text) }
    case 'roots':
      return { roots: added(own.roots, file.text) }
    case 'measurements': {
      const { measurements } = fillPolicy(file)
      const sets = own.measurements.split(/\n[ \t]*\n/).filter((set) => set.trim() !== '')
      return { measurements: [...new Set([...sets, measurements])].join('\n\n') }
    }
    case 'policy': {
      const filled = Object.entries(fillPolicy(file))
      return Object.fromEntries(filled.filter(([, value]) => value.length > 0))
    }
  }
}

/**
 * The file must pass the same checks as in the client and on the command line. Throws
 * PolicyFault for a file that fails these checks or is of another kind.
 */
export function fillPolicy(file: ExpectedFile): Filled {
  if (!('value' in file)) throw unfilled(`${file.name} is a ${KIND_WORDS[file.kind]}.`)
  const { kind, value } = file
  if (kind === 'measurements')
    return { ...fieldsOf({}, file.name), measurements: writeSet(value, file.name) }
  try {
    readEnclavesPolicy(value as Policy)
  } catch (fault) {
    if (!(fault instanceof PolicyError)) throw fault
    throw unfilled(`${file.name} is not a policy: ${fault.message}.`)
  }
  const { enclaves, providers } = value
  const fields = fieldsOf(isJsonObject(enclaves) ? enclaves : {}, file.name)
  return { ...fields, providers: providers === undefined ? '' : JSON.stringify(providers, null, 2) }
}

function fieldsOf(value: JsonObject, name: string): Filled {
  const configurations = listOf(value.configurations)
  const roots = listOf(value.roots)
  const isFingerprint = (one: Json) => typeof one === 'string' && DIGEST_FORM.test(one)
  const isDigest = (one: Json) => typeof one === 'string' && !one.trimStart().startsWith('{')
  const fileOf = (what: string) => (one: Json, at: number) =>
    new File([typeof one === 'string' ? one : JSON.stringify(one)], `${what} ${at + 1} of ${name}`)
  return {
    releases: listOf(value.releases).map(fileOf('release')),
    releaseKeys: textsOf(value.releaseKeys).join('\n'),
    releaseSigners: String(value.releaseSigners ?? ''),
    measurements: listOf(value.measurements)
      .map((set) => writeSet(set, name))
      .join('\n\n'),
    configurations: textsOf(configurations.filter(isDigest)).join('\n'),
    configurationFiles: configurations.filter((one) => !isDigest(one)).map(fileOf('configuration')),
    roots: roots.filter((one) => !isFingerprint(one)).map(fileOf('roots')),
    rootText: textsOf(roots.filter(isFingerprint)).join('\n'),
  }
}

/** A boot configuration has `providers` too, beside its chain. */
function isPolicy(json: JsonObject): boolean {
  if (Object.hasOwn(json, 'enclaves')) return true
  return Object.hasOwn(json, 'providers') && !Object.hasOwn(json, 'chain_id')
}

/**
 * `text` is null if it is not UTF-8. `json` is null for a text that is not a JSON object, or that
 * two parsers could read differently.
 */
function read(bytes: Uint8Array): {
  readonly text: string | null
  readonly json: JsonObject | null
} {
  let text: string | null = null
  try {
    text = decodeUtf8(bytes)
    const json = parseExactJson(bytes)
    return { text, json: isJsonObject(json) ? json : null }
  } catch (fault) {
    if (fault instanceof JsonError) return { text, json: null }
    throw fault
  }
}

/**
 * Returns registers by name (`PCR0`), from `{"PCR0": "…"}` or `{"0": "…"}`. Image builders write
 * such an object under `Measurements`, so this function reads that object too. Null for an object
 * without registers. Refuses an invalid name of a register, because it would weaken the
 * policy to ignore that register.
 */
function registersOf(json: JsonObject): JsonObject | null {
  const inner = memberOf(json, 'Measurements')
  const registers = new Map<string, Json>()
  for (const [name, value] of Object.entries(isJsonObject(inner) ? inner : json)) {
    const [, index] = REGISTER_NAME.exec(name) ?? []
    if (index === undefined && !LIKE_REGISTER.test(name)) continue
    if (index === undefined || registers.has(`PCR${index}`))
      throw unfit(
        `The measurements have a register “${name}” that does not exist, or is there twice.`,
      )
    registers.set(`PCR${index}`, value)
  }
  return registers.size === 0 ? null : Object.fromEntries(registers)
}

const LIKE_REGISTER = /^(?:pcr)?\d+$/i

/**
 * One register per line. Refuses a value that is not text, because it would weaken the policy
 * to ignore that register.
 */
function writeSet(set: Json, file: string): string {
  const registers = isJsonObject(set) ? registersOf(set) : null
  if (registers === null) throw unfilled(`${file} has a set without measurements.`)
  return Object.entries(registers)
    .map(([name, value]) => {
      if (typeof value !== 'string') throw unfilled(`${file} has a ${name} that is not text.`)
      return `${name}=${value}`
    })
    .join('\n')
}

function listOf(given: Json | undefined): readonly Json[] {
  return isJsonArray(given) ? given : given === undefined ? [] : [given]
}

function textsOf(value: Json | undefined): readonly string[] {
  return listOf(value).flatMap((one) => (typeof one === 'string' ? [one] : []))
}

function unfit(message: string): PolicyFault {
  return new PolicyFault(
    message,
    'Give a policy, a release, measurements, a boot configuration or a root certificate.',
  )
}

function unfilled(message: string): PolicyFault {
  return new PolicyFault(
    message,
    'Give policy.json, or measurements as JSON. Releases, roots and configurations have their own fields.',
  )
}
