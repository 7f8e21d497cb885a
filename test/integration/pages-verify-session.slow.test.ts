import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildCalls, sessionOf } from '../attestation/session/build-session.ts'
import { BROWSER, openPage } from '../support/browser.ts'
import { driveVerifyPage } from '../support/drive-verify-page.ts'
import { standardChain } from '../support/nitro-builder/document-builder.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'

let site: ServedPages
let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-session-'))
  site = await serveVerifyPage()
})
afterAll(async () => {
  await site.close()
  await rm(folder, { recursive: true })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('a session on /verify'), () => {
  it('the page shows the verdict, the checks and each call of a session', async () => {
    const { page, faults } = await openPage(`${site.url}/verify`)
    const driver = await driveVerifyPage(page)
    await driver.expect({ any_measurement: true }, (path) => path)
    const calls = buildCalls()
    const bytes = Buffer.from(JSON.stringify(sessionOf(calls.toSpliced(1, 1))))
    const report = await driver.check({ name: 'session.json', bytes })
    expect(report.verdict).toBe('invalid')
    expect(report.failed).toEqual(['evidence of calls', 'none missing', 'previous hash'])
    expect(await page.locator('[data-call]').count()).toBe(calls.length - 1)
    expect(await page.getByText('It is warm in Rome.').count()).toBe(0)

    const root = join(folder, 'root.der')
    await writeFile(root, standardChain.cabundle[0] ?? new Uint8Array())
    await driver.expect({ any_measurement: true, roots: [root] }, (path) => path)
    const whole = Buffer.from(JSON.stringify(sessionOf(calls)))
    expect((await driver.check({ name: 'session.json', bytes: whole })).verdict).toBe('consistent')
    const said = page.locator('[data-call="1"] .messages').getByText('It is warm in Rome.')
    expect(await said.count()).toBe(1)
    expect(faults).toEqual([])
    await page.context().close()
  })
})
