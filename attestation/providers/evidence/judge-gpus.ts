import { decodeBase64, encodeHex } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { type Json, memberAt } from '../../json/value.ts'
import { type GpuEvidence, verifyGpuEvidence } from '../nvidia/verify-gpu-evidence.ts'
import { established, requireChecks, waived } from '../provider-checks.ts'
import { ProviderEvidenceError } from '../provider-error.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import { earliestOf, type Judging, type KindFacts } from './judging.ts'

/** Twice the devices of one machine, which has eight GPUs and four switches. */
const DEVICES_MAX = 24

const { arrayOf, textOf } = formsOf('gpu_malformed')

/** Each object has `certificate` (base64 of PEM) and `evidence` (base64). */
export function readDevices(json: Json | undefined): readonly GpuEvidence[] {
  return parsedAs('gpu_malformed', () =>
    arrayOf(json, 'device evidence', { min: 0, max: DEVICES_MAX }).map((item) => {
      const pem = decodeBase64(textOf(memberAt(item, 'certificate'), 'certificate'))
      return {
        evidence: decodeBase64(textOf(memberAt(item, 'evidence'), 'evidence')),
        certificates: new TextDecoder('latin1').decode(pem),
      }
    }),
  )
}

/**
 * Makes the check "GPU": every device signed evidence for the nonce. Returns the names of the
 * devices, and the earlier of their end and `endsAtMs`, the end of the other evidence. `tie`
 * describes, for people, what links the devices to the machine.
 */
export async function judgeGpus(
  { evidence: { nonce }, terms, checks, at, add }: Judging,
  {
    read,
    tie,
    endsAtMs,
  }: {
    readonly read: () => readonly GpuEvidence[]
    readonly tie: string
    readonly endsAtMs: number | null
  },
): Promise<Pick<KindFacts, 'gpus' | 'endsAtMs'>> {
  const devices = await checks.make('GPU', async () => {
    const devices = read()
    const isRequired = terms.gpu === 'required'
    if (devices.length === 0 && !isRequired) return waived('the answer has no evidence of GPUs')
    const judged = await Promise.all(
      devices.map(async (one) => verifyGpuEvidence(one, { nonce, roots: terms.roots.nvidia }, at)),
    )
    for (const [index, one] of judged.entries()) add(`GPU ${index}`, one.checks)
    for (const one of judged) requireDevice(one.checks)
    const facts = judged.flatMap((one) => one.facts ?? [])
    if (isRequired && facts.every(({ isSwitch }) => isSwitch))
      throw refuseEvidence('gpu_missing', 'expected evidence of a GPU, which a switch is not')
    const own = new Set(facts.map(({ deviceKey }) => encodeHex(deviceKey)))
    if (own.size < facts.length)
      throw refuseEvidence('gpu_repeated', 'expected evidence of each device once')
    const names = facts.map(({ device }) => device)
    return established(facts, `${names.join(', ')}: genuine, firmware unknown; ${tie}`)
  })
  const ends = (devices ?? []).map((device) => device.endsAtMs)
  return {
    gpus: (devices ?? []).map(({ device }) => device),
    endsAtMs: earliestOf(endsAtMs, ...ends),
  }
}

function requireDevice(checks: Parameters<typeof requireChecks>[0]): void {
  try {
    requireChecks(checks)
  } catch (fault) {
    if (!(fault instanceof ProviderEvidenceError)) throw fault
    throw refuseEvidence('gpu_refused', fault.message)
  }
}
