import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let answer: { readonly hash: string; readonly receipt: { readonly finished_at: number } }
let notary = ''

beforeAll(async () => {
  service = await useAffidavit()
  const reply = await postChat({ url: service.url, key: service.apiKey }, CHAT_REQUEST)
  expect(reply.status).toBe(200)
  answer = (await reply.json()) as typeof answer
  const { leaf } = (await (await fetch(`${service.url}/v1/evidence/${answer.hash}`)).json()) as never
  notary = leaf
})
