import { decodeBase64, decodeHex, equalBytes } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberAt } from '../../json/value.ts'
import { refuseGpu } from './gpu-rules.ts'
import { decodeSpdmEvidence } from './spdm-evidence.ts'
import type { GpuEvidence } from './verify-gpu-evidence.ts'

/** Evidence of one device, with the architecture that the sender states. */
export type ArchivedGpuEvidence = GpuEvidence & { readonly arch: string }

/** Maximum number of devices in one file. One machine has eight GPUs and four switches. */
const DEVICES_MAX = 24

/**
 * Parses attacker-controlled JSON from NVIDIA's tools: objects with arch, certificate (base64 of
 * PEM), evidence (base64), nonce (hex) and an optional version. The nonce must be the nonce in the
 * evidence. Throws ProviderEvidenceError `answer_malformed`, or a code of rules 1 to 5.
 */
export function parseGpuEvidence(bytes: Uint8Array): readonly ArchivedGpuEvidence[] {
  const { arrayOf } = formsOf('answer_malformed')
  try {
    const items = arrayOf(parseExactJson(bytes), 'the evidence', { min: 1, max: DEVICES_MAX })
    return items.map(parseDevice)
  } catch (fault) {
    if (!(fault instanceof FormatError)) throw fault
    throw refuseGpu('answer_malformed', fault.message)
  }
}

/** Newer tools also write a member `version`. */
const MEMBERS = ['arch', 'certificate', 'evidence', 'nonce'] as const

function parseDevice(json: Json): ArchivedGpuEvidence {
  const { membersOf, textOf, hexOf } = formsOf('answer_malformed')
  const isVersioned = memberAt(json, 'version') !== undefined
  const members = membersOf(json, 'each', isVersioned ? [...MEMBERS, 'version'] : MEMBERS)
  const evidence = decodeBase64(textOf(members.evidence, 'evidence'))
  const nonce = decodeHex(hexOf(members.nonce, 'nonce', 32))
  if (!equalBytes(nonce, decodeSpdmEvidence(evidence).nonce))
    throw refuseGpu('nonce_mismatch', "expected the evidence's own nonce beside it")
  const pem = decodeBase64(textOf(members.certificate, 'certificate'))
  return {
    arch: textOf(members.arch, 'arch'),
    evidence,
    certificates: new TextDecoder().decode(pem),
  }
}
