import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import {
  createAttestationVerifier,
  verifyAttestation,
} from '#attestation/nitro/verify-attestation.ts'
import { decodePolicy, type Vector } from './vector.ts'

/**
 * The result of one vector: `accepted <module id> <SHA-256 of the leaf>`, or the code of its
 * refusal.
 */
export type VectorResult = { readonly plain: string; readonly cached: string }

/**
 * Verifies each vector without a cache and with one that all share. Runs in Node and in a browser.
 */
export async function runVectors(vectors: readonly Vector[]): Promise<readonly VectorResult[]> {
  const verifier = createAttestationVerifier()
  const results: VectorResult[] = []
  for (const vector of vectors) {
    results.push({
      plain: await runVector(vector, verifyAttestation),
      cached: await runVector(vector, verifier.verify),
    })
  }
  return results
}

async function runVector(vector: Vector, verify: typeof verifyAttestation): Promise<string> {
  const policy = decodePolicy(vector.policy, { decode: decodeHex })
  try {
    const facts = await verify(decodeHex(vector.document), policy, new Date(vector.atMs))
    return `accepted ${facts.moduleId} ${encodeHex(facts.certificates.at(-1)?.sha256 ?? new Uint8Array())}`
  } catch (error) {
    return error instanceof AttestationError ? error.code : `threw ${error}`
  }
}

// A page has no other way to give the function to the test that drives it.
Object.assign(globalThis, { runVectors })
