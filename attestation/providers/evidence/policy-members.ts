import { decodeBase64, decodeHex, encodeUtf8 } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { isJsonArray, type Json, type JsonObject } from '../../json/value.ts'
import type { MeasurementSet } from '../../nitro/policy.ts'
import type { DstackImage } from '../dstack/dstack-policy.ts'
import type { SigstoreTrust } from '../sigstore/sigstore-trust.ts'
import type { SnpRoots } from '../snp/policy.ts'
import { SNP_PRODUCTS } from '../snp/tcb.ts'
import type { TdxMeasurements } from '../tdx/tdx-policy.ts'

/** Each reader throws a FormatError that names the member. */
export const policyForms = formsOf('policy_invalid')

const { invalid, textOf, hexOf } = policyForms

/**
 * Refuses an object that lacks a member of `required`, or has a member outside `required` and
 * `optional`. If `optional` is null, any other member is allowed.
 */
export function policyObject(
  json: Json | undefined,
  name: string,
  {
    required = [],
    optional,
  }: { readonly required?: readonly string[]; readonly optional: readonly string[] | null },
): JsonObject {
  const object = policyForms.objectOf(json, name)
  const missing = required.find((member) => !Object.hasOwn(object, member))
  if (missing !== undefined) throw invalid(name, `an object with ${missing}`)
  const known = optional && new Set([...required, ...optional])
  const unknown = Object.keys(object).find((member) => known && !known.has(member))
  if (unknown !== undefined)
    throw invalid(
      name,
      `an object of ${[...(known ?? [])].join(', ')}, without ${JSON.stringify(unknown.slice(0, 40))}`,
    )
  return object
}

export function policyList<Item>(
  json: Json | undefined,
  name: string,
  read: (item: Json, name: string) => Item,
): readonly Item[] {
  if (!isJsonArray(json) || json.length === 0) throw invalid(name, 'a list of one or more')
  return json.map((item, index) => read(item, `${name}.${index}`))
}

/** Returns `fallback` if the member is left out. */
export function wholeIn(json: Json | undefined, name: string, fallback: number): number {
  return json === undefined ? fallback : policyForms.countOf(json, name)
}

export function flagIn(json: Json | undefined, name: string, fallback: boolean): boolean {
  if (json === undefined || typeof json === 'boolean') return json ?? fallback
  throw invalid(name, 'true or false')
}

/** Values of `bytes` bytes in hex. */
export function hashesIn(
  json: Json | undefined,
  name: string,
  bytes: number,
): readonly Uint8Array[] {
  return policyList(json, name, (item, where) => decodeHex(hexOf(item, where, bytes)))
}

export const TDX_REGISTERS = ['mrtd', 'rtmr0', 'rtmr1', 'rtmr2', 'rtmr3'] as const

export function tdxSetsIn(
  json: Json | undefined,
  name: string,
  registers: { readonly required?: readonly string[]; readonly optional: readonly string[] },
): readonly TdxMeasurements[] {
  return policyList(json, name, (item, where) => {
    const entries = Object.entries(policyObject(item, where, registers)).map(
      ([register, value]) => {
        const member = register === 'mrtd' ? 'mrTd' : register
        return [member, decodeHex(hexOf(value, `${where}.${register}`, 48))] as const
      },
    )
    return Object.fromEntries(entries)
  })
}

/** `checksums` and `metadata` are strings in the JSON, and bytes in the result. */
export function imagesIn(json: Json | undefined, name: string): readonly DstackImage[] {
  return policyList(json, name, (item, where) => {
    const image = policyObject(item, where, {
      required: ['checksums', 'metadata', 'measurements'],
      optional: [],
    })
    return {
      checksums: encodeUtf8(textOf(image.checksums, `${where}.checksums`)),
      metadata: encodeUtf8(textOf(image.metadata, `${where}.metadata`)),
      measurements: tdxSetsIn(image.measurements, `${where}.measurements`, {
        required: ['mrtd', 'rtmr0', 'rtmr1', 'rtmr2'],
        optional: [],
      }),
    }
  })
}

/** Each set must have PCR0, the only register that identifies the image. */
export function pcrSetsIn(json: Json | undefined, name: string): readonly MeasurementSet[] {
  return policyList(json, name, (item, where) => {
    const set = policyObject(item, where, { required: ['PCR0'], optional: null })
    return new Map(
      Object.entries(set).map(([register, value]) => {
        const [, index] = /^PCR([0-9]|[12][0-9]|3[01])$/.exec(register) ?? []
        if (index === undefined) throw invalid(where, 'hex by PCR0 to PCR31')
        return [Number(index), decodeHex(hexOf(value, `${where}.${register}`, 48))]
      }),
    )
  })
}

/** Each fingerprint is the SHA-256 of the DER. */
export function rootsIn(json: Json, name: string) {
  const given = policyObject(json, name, {
    optional: ['intel', 'amd', 'nvidia', 'aws', 'sigstore'],
  })
  const fingerprints = (value: Json | undefined, where: string) => hashesIn(value, where, 32)
  const { intel, amd, nvidia, aws, sigstore } = given
  return {
    ...(intel === undefined ? {} : { intel: fingerprints(intel, `${name}.intel`) }),
    ...(amd === undefined ? {} : { amd: amdRootsIn(amd, `${name}.amd`, fingerprints) }),
    ...(nvidia === undefined ? {} : { nvidia: fingerprints(nvidia, `${name}.nvidia`) }),
    ...(aws === undefined ? {} : { aws: fingerprints(aws, `${name}.aws`) }),
    ...(sigstore === undefined ? {} : { sigstore: sigstoreIn(sigstore, `${name}.sigstore`) }),
  }
}

function amdRootsIn(
  json: Json,
  name: string,
  fingerprints: (value: Json | undefined, where: string) => readonly Uint8Array[],
): SnpRoots {
  const roots = policyObject(json, name, { optional: SNP_PRODUCTS })
  return Object.fromEntries(
    SNP_PRODUCTS.filter((product) => Object.hasOwn(roots, product)).map((product) => [
      product,
      fingerprints(roots[product], `${name}.${product}`),
    ]),
  )
}

/** DER in base64. */
function sigstoreIn(json: Json, name: string): SigstoreTrust {
  const { authorities, logs, certificate_logs } = policyObject(json, name, {
    required: ['authorities', 'logs', 'certificate_logs'],
    optional: [],
  })
  const derOf = (item: Json, where: string) => new Uint8Array(decodeBase64(textOf(item, where)))
  return {
    authorities: policyList(authorities, `${name}.authorities`, derOf),
    logs: policyList(logs, `${name}.logs`, derOf),
    certificateLogs: policyList(certificate_logs, `${name}.certificate_logs`, derOf),
  }
}
