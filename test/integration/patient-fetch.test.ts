import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { patientFetch } from '#client/patient-fetch.ts'

const DISPATCHER = Symbol.for('undici.globalDispatcher.1')
const globals = globalThis as Record<symbol, object | undefined>

let server: Server
let url: string
let usual: object | undefined

/**
 * Its answers take longer than the limit that the tests give to Node's own `fetch`. This file has a
 * process of its own: where undici is loaded first, its dispatcher takes the place of Node's.
 */
beforeEach(async () => {
  server = createServer((request, response) => {
    request.resume()
    setTimeout(() => response.end('late'), 1_800)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  await fetch('data:,')
  usual = globals[DISPATCHER]
})
afterEach(() => {
  globals[DISPATCHER] = usual
  server.closeAllConnections()
  server.close()
})

/** Gives the global dispatcher a limit of some milliseconds. */
function setImpatient(name?: string): void {
  const { constructor: Agent } = usual as {
    readonly constructor: new (limits: object) => object
  }
  const Named = name === undefined ? Agent : class extends Agent {}
  if (name !== undefined) Object.defineProperty(Named, 'name', { value: name })
  globals[DISPATCHER] = new Named({ headersTimeout: 100 })
}

it('an answer whose head comes later than Node waits is read', async () => {
  setImpatient()
  const [impatient, patient] = await Promise.allSettled([fetch(url), patientFetch()(url)])
  expect(impatient).toMatchObject({ reason: { cause: { code: 'UND_ERR_HEADERS_TIMEOUT' } } })
  expect(patient).toMatchObject({ status: 'fulfilled', value: { status: 200 } })
})

it("a program's own dispatcher keeps its limits", async () => {
  setImpatient('OwnAgent')
  await expect(patientFetch()(url)).rejects.toMatchObject({
    cause: { code: 'UND_ERR_HEADERS_TIMEOUT' },
  })
})
