import { encodeHex } from '../../bytes.ts'
import { verifyDstackLog } from '../dstack/verify-dstack-log.ts'
import { blockedBy, established, notGiven } from '../provider-checks.ts'
import { refuseEvidence } from './evidence-codes.ts'
import { NO_SNP_TERMS } from './hardware-terms.ts'
import { judgeHardware } from './judge-hardware.ts'
import {
  findOpen,
  hardwareFactsOf,
  type Judging,
  type KindFacts,
  NO_KIND_FACTS,
  type ProviderCode,
} from './judging.ts'
import type { KeptCollateral } from './kept-collateral.ts'

export type ApplicationEvidence = {
  readonly quote: Uint8Array
  readonly eventLog: Uint8Array
  readonly appCompose: Uint8Array | null
  readonly configDocument: Uint8Array | null
}

/**
 * Judges the quote and the event log of a dstack machine: they prove its application and OS image.
 * `keysIn` returns the TLS keys that the report data prove, or throws ProviderEvidenceError.
 */
export async function judgeApplication(
  judging: Judging,
  {
    answer,
    collateral,
  }: {
    readonly answer: ApplicationEvidence | null
    readonly collateral: KeptCollateral | null
  },
  keysIn: (reportData: Uint8Array) => KindFacts['tlsKeys'],
): Promise<KindFacts> {
  const { terms, checks, add } = judging
  const judged = await checks.make('hardware', async () => {
    if (answer === null) return blockedBy('answer')
    if (collateral === null) return blockedBy('collateral')
    if (terms.tdx === null)
      throw refuseEvidence('tee_not_accepted', 'expected other hardware than TDX')
    const found = await judgeHardware(
      { tee: 'TDX', quote: answer.quote },
      {
        ...judging,
        ...terms,
        collateral,
        tdx: terms.tdx,
        snp: NO_SNP_TERMS,
        code: { tdx: 'any', snp: 'any' },
      },
    )
    return established(found, 'TDX')
  })
  add(
    'TDX',
    (judged?.checks ?? []).filter(({ name }) => name !== 'measurements'),
  )
  const tlsKeys = await checks.make('key binding', () => {
    const facts = judged?.facts
    if (!facts) return blockedBy('hardware')
    const found = keysIn(facts.reportData)
    return established(found, found.map(({ spkiSha256 }) => spkiSha256).join(', '))
  })
  const body = judged?.facts?.body
  const { code: demanded } = terms
  const application = demanded?.by === 'application' ? demanded : null
  const log =
    body && answer
      ? await verifyDstackLog(
          { body, ...answer },
          {
            composeHashes: application?.composeHashes ?? 'any',
            images: application?.images ?? 'any',
            ...(application?.appIds ? { appIds: application.appIds } : {}),
          },
        )
      : null
  add('dstack', log?.checks ?? [])
  const code: ProviderCode | null = log?.facts
    ? {
        by: 'application',
        repository: null,
        release: null,
        digest: encodeHex(log.facts.composeHash),
      }
    : null
  await checks.make('code', () => {
    if (terms.code === null) return notGiven('a policy was')
    if (!log || !code) return blockedBy('dstack')
    const open = log.checks.find(({ outcome, isWaived }) => outcome !== 'passed' && !isWaived)
    if (open) return blockedBy(`dstack: ${open.name}`)
    const image = log.facts?.osImageHash
    const system = image ? `OS image ${encodeHex(image)}` : 'any OS'
    return established(code, `application ${code.digest} on ${system}`)
  })
  if (!judged?.facts) return NO_KIND_FACTS
  return {
    ...hardwareFactsOf(judged.facts, !findOpen(judged.checks, ['TD attributes'])),
    tlsKeys: tlsKeys ?? [],
    code,
  }
}
