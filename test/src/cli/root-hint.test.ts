import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeBase64 } from '#attestation/bytes.ts'
import { hintAtRoot, ROOT_HINT } from '#src/cli/printable.ts'
import { buildEvidence } from '../../attestation/evidence/build-evidence.ts'
import { openStage, type Stage } from '../../audit/stage.ts'
import { buildLog, createTestNotary } from '../../support/audited-log.ts'
import { folderOfFile, saverIn } from '../../support/folders.ts'
import { runCommand } from '../../support/run-command.ts'

const { bundle } = buildEvidence()

let stage: Stage
const save = saverIn(folderOfFile())
/** What reads a document that AWS did not issue. */
let commands: readonly (readonly string[])[]

beforeAll(async () => {
  stage = await openStage()
  const log = await buildLog(await createTestNotary(), {
    batches: [1, 2],
    attestedSizes: [3],
    anchoring: { chain: null, nonce: 0 },
  })
  stage.server.serve([log])
  const document = decodeBase64(bundle.record.attestation)
  commands = [
    ['verify', await save('bundle.json', bundle)],
    ['verify', await save('record.json', bundle.record), '--any-measurement'],
    ['attestation', await save('document', document), '--any-measurement', '--historical'],
    ['audit', stage.server.url],
  ]
})
afterAll(() => stage.close())

describe('a document whose root is not trusted', () => {
  it('a document with an untrusted root brings a hint at the root of a development enclave', async () => {
    for (const words of commands) {
      const { code, stdout } = await runCommand(...words)
      expect([words[0], code, stdout.split(ROOT_HINT)]).toEqual([
        words[0],
        1,
        [expect.anything(), expect.anything()],
      ])
    }
  })
})

describe('hintAtRoot', () => {
  it('a hint at the root is not given for other faults', () => {
    expect(hintAtRoot([])).toBe('')
    expect(hintAtRoot(['chain_order: expected root_untrusted', 'certificate_expired: x'])).toBe('')
    expect(hintAtRoot(['attestation document: root_untrusted: x'])).toBe(`${ROOT_HINT}\n`)
  })
})
