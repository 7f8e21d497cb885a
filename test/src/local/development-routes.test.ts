import { afterAll, beforeAll, expect, it } from 'vitest'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)

it("a gateway with the operator's own enclaves has no policy for itself, and marks no page", async () => {
  const reply = await fetch(`${gateway.url}/development/policy`)
  expect(reply.status).toBe(404)
  expect(await reply.json()).toMatchObject({ error: { code: 'not_found' } })
  const page = await (await fetch(`${gateway.url}/verify`)).text()
  expect(page).toContain('<title>Verify')
  expect(page).not.toContain('affidavit-development')
})
