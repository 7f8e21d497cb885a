import { describe, expect, it } from 'vitest'
import type { DescribedLog } from '#src/web/log/answers.ts'
import { createGrowthWatch } from '#src/web/log/growth.ts'
import { createSeenHeads } from '#src/web/log/seen-heads.ts'

const LOG: DescribedLog = {
  notary: `0x${'ab'.repeat(20)}`,
  public_key: `0x${'00'.repeat(65)}`,
  chain_id: 1,
  contract: `0x${'12'.repeat(20)}`,
  boot_configuration: { chain_id: 1, providers: [] },
  created_at: 1,
  size: 0,
  root: 'cd'.repeat(32),
  head: null,
  attestation_sha256: null,
}

describe('the growth of a log', () => {
  it('the growth of a log is broken for good when its boot configuration changes', async () => {
    const watch = createGrowthWatch({
      notary: LOG.notary,
      seen: createSeenHeads(null),
      readPath: async () => [],
      now: () => 1,
    })
    const observe = (log: DescribedLog) => watch.observe(log, null, new AbortController().signal)
    expect(await observe(LOG)).toMatchObject({ kind: 'first' })
    const sameInOtherOrder = { providers: [], chain_id: 1 }
    expect(await observe({ ...LOG, boot_configuration: sameInOtherOrder })).toMatchObject({
      kind: 'first',
    })
    const providers = [{ name: 'evil', origin: 'https://evil.example' }]
    const broken = {
      kind: 'broken',
      reason: 'its enclave now has another boot configuration',
    }
    expect(await observe({ ...LOG, boot_configuration: { chain_id: 1, providers } })).toMatchObject(
      broken,
    )
    expect(await observe(LOG)).toMatchObject(broken)
  })
})
