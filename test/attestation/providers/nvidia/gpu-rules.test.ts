import { expect, it } from 'vitest'
import {
  GPU_CHECKS,
  NRAS_CHECKS,
  NVIDIA_CODES,
  NVIDIA_RULES,
} from '#attestation/providers/nvidia/gpu-rules.ts'
import { verifyGpuEvidence } from '#attestation/providers/nvidia/verify-gpu-evidence.ts'
import { verifyNrasAnswer } from '#attestation/providers/nvidia/verify-nras-answer.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { FIRMWARE_ID, GPU_AT } from '../../../support/provider-builder/gpu-builder.ts'
import { NRAS_AT } from '../../../support/provider-builder/nras-builder.ts'
import {
  gpuAcceptances,
  gpuCaseOf,
  gpuRefusals,
} from '../../../support/provider-cases/gpu-cases.ts'
import {
  nrasAcceptances,
  nrasCaseOf,
  nrasRefusals,
} from '../../../support/provider-cases/nras-cases.ts'

function expectRefusal(checks: readonly ProviderCheck[], code: keyof typeof NVIDIA_CODES): void {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  expect(failed.map((check) => [check.code, check.name])).toEqual([
    [code, NVIDIA_RULES[NVIDIA_CODES[code]]],
  ])
  expect(() => requireChecks(checks)).toThrow(ProviderEvidenceError)
}

it.each(gpuAcceptances)('rule $rule of GPU evidence accepts $name', async (acceptance) => {
  const { evidence, policy } = gpuCaseOf(acceptance)
  const { facts, checks } = await verifyGpuEvidence(evidence, policy, GPU_AT)
  expect(() => requireChecks(checks)).not.toThrow()
  expect(checks.map(({ name }) => name)).toEqual(Object.keys(GPU_CHECKS))
  expect(facts).not.toBeNull()
})

it.each(gpuRefusals)('verifyGpuEvidence refuses with $code: $name', async (refusal) => {
  const { evidence, policy } = gpuCaseOf(refusal)
  const { checks } = await verifyGpuEvidence(evidence, policy, GPU_AT)
  expectRefusal(checks, refusal.code)
})

it('accepted evidence gives the fields, and reference values stay unchecked', async () => {
  const { evidence, policy } = gpuCaseOf({})
  const { facts, checks } = await verifyGpuEvidence(evidence, policy, GPU_AT)
  expect(facts).toMatchObject({ device: 'GH100 A01 GSP FMC LF', driver: '590.12', slot: 0 })
  expect(facts?.firmwareId).toEqual(FIRMWARE_ID)
  expect(facts?.measurements.size).toBe(3)
  const open = checks.filter(({ outcome }) => outcome === 'not checked')
  expect(open.map(({ name }) => name)).toEqual(['reference values', 'device revocation'])
})

it.each(nrasAcceptances)('rule $rule of NRAS answers accepts $name', async (acceptance) => {
  const { evidence, policy } = nrasCaseOf(acceptance)
  const at = acceptance.at ?? NRAS_AT
  const { devices, checks } = await verifyNrasAnswer(evidence, policy, at)
  expect(() => requireChecks(checks)).not.toThrow()
  expect(checks.map(({ name }) => name)).toEqual(Object.keys(NRAS_CHECKS))
  expect(devices).toMatchObject([{ name: 'GPU-0', driver: '590.12', vbios: null }])
})

it.each(nrasRefusals)('verifyNrasAnswer refuses with $code: $name', async (refusal) => {
  const { evidence, policy } = nrasCaseOf(refusal)
  const { checks } = await verifyNrasAnswer(evidence, policy, refusal.at ?? NRAS_AT)
  expectRefusal(checks, refusal.code)
})
