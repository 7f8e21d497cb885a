import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit

beforeAll(async () => {
  service = await useAffidavit()
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the reference of the API'), () => {
  const open = async (hash: string) => {
    const opened = await openPage(`${service.url}/docs${hash}`)
    const section = opened.page.locator(hash === '' ? '.operation' : `.operation${hash}`)
    await section.first().waitFor()
    return { ...opened, section }
  }

  it('the API reference has every operation of the document, and finds them by words', async () => {
    const { page, section, faults } = await open('')
    const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as {
      readonly paths: Readonly<Record<string, object>>
    }
    const count = Object.values(document.paths).flatMap((methods) => Object.keys(methods)).length
    expect(await section.count()).toBe(count)
    expect(await page.locator('nav[aria-label=Operations] a').count()).toBe(count)
    await page.getByLabel('Find').fill('post embeddings')
    await expect.poll(() => section.count()).toBe(1)
    await section.getByText('Request: EmbeddingRequest').click()
    await section.getByText('encoding_format', { exact: true }).waitFor()
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the API reference makes a call with the key of the tab, streams its answer, and keeps the key to itself', async () => {
    const { page, section, faults } = await open('#postV1VerifiedChatCompletions')
    const urls: string[] = []
    page.on('request', (request) => urls.push(request.url()))
    const body = section.getByLabel('Body', { exact: true })
    const call = { ...JSON.parse(await body.inputValue()), stream: true }
    await body.fill(JSON.stringify(call))
    expect(await section.getByRole('button', { name: 'Send POST' }).isDisabled()).toBe(true)
    await section.getByLabel('API key').fill(service.apiKey)
    await section.getByRole('button', { name: 'Send POST' }).click()
    await section.getByText('Status 200').waitFor()
    await section.getByText('data: [DONE]').waitFor()
    expect(await findBarriers(page)).toEqual([])
    expect(urls.join()).not.toContain(service.apiKey)
    expect(await page.content()).not.toContain(service.apiKey)
    expect(
      await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])'),
    ).toBe('[{},{},""]')
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the API reference shows what the gateway refuses, as text', async () => {
    const { page, section } = await open('#getV1LogNotary')
    const hostile = '<img src=x onerror=alert(1)>\u202e'
    await section.getByLabel('notary').fill(hostile)
    await section.getByRole('button', { name: 'Send GET' }).click()
    await section.getByText('Status 422').waitFor()
    await section.getByText('"detail"').waitFor()
    expect(await section.locator('img').count()).toBe(0)
    expect(await section.getByLabel('The call in curl', { exact: true }).textContent()).toContain(
      `/v1/log/${encodeURIComponent(hostile)}`,
    )
    await page.context().close()
  })
})
