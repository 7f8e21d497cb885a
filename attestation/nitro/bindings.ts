import { sha384 } from '@noble/hashes/sha2.js'
import { concatBytes, encodeUtf8, equalBytes } from '../bytes.ts'
import type { Certificate } from './certificate.ts'
import { type AttestationDocument, PCR_BYTES } from './document.ts'

/**
 * Whether the parts of a document name the same instance (rule 25). Reported, not demanded: AWS does not document them,
 * so nothing is refused for them. Each is null where there is nothing to compare.
 */
export type Bindings = {
  /** EC2 instance id, the part of module_id before `-enc`; null when module_id has another form. */
  readonly instanceId: string | null
  /** PCR4 = SHA-384 of 48 zero bytes and the instance id. */
  readonly pcr4: boolean | null
  /** The leaf's common name begins with module_id. */
  readonly leafCommonName: boolean | null
  /** The issuer's common name begins with the instance id. */
  readonly issuerCommonName: boolean | null
}

/** Gives what PCR4 and the common names of `leaf` and its issuer say about the instance. */
export function findBindings({ moduleId, pcrs }: AttestationDocument, leaf: Certificate): Bindings {
  const instanceId = /^(i-[0-9a-f]+)-enc[0-9a-f]+$/.exec(moduleId)?.[1] ?? null
  const pcr4 = pcrs.get(4)
  return {
    instanceId,
    pcr4: instanceId !== null && pcr4 ? equalBytes(pcr4, instanceMeasurement(instanceId)) : null,
    leafCommonName: beginsWith(leaf.subject.commonName, moduleId),
    issuerCommonName: beginsWith(leaf.issuer.commonName, instanceId),
  }
}

/** The value that PCR4 has on the instance `instanceId`. */
export function instanceMeasurement(instanceId: string): Uint8Array {
  return sha384(concatBytes(new Uint8Array(PCR_BYTES), encodeUtf8(instanceId)))
}

/** The next character must end the id, or i-1 would pass for i-12. */
function beginsWith(name: string | null, prefix: string | null): boolean | null {
  if (name === null || prefix === null) return null
  return name === prefix || (name.startsWith(prefix) && /^[.-]/.test(name.slice(prefix.length)))
}
