import OpenAI from 'openai'
import { AffidavitError, connect } from '../../index.ts' // in your project, import from 'affidavit'

const form = find('form', HTMLFormElement)
const answer = find('#answer', HTMLElement)
const verdict = find('#verdict', HTMLElement)
const checks = find('#checks', HTMLElement)

form.addEventListener('submit', (event) => {
  event.preventDefault()
  const fields = Object.fromEntries(new FormData(form))
  answer.textContent = verdict.textContent = ''
  checks.replaceChildren()
  ask(fields as Readonly<Record<string, string>>).then(
    () => show('checked', 'Every check passed.'),
    (fault: unknown) => {
      if (fault instanceof AffidavitError) list(fault.checks)
      const code = fault instanceof AffidavitError ? fault.code : 'error'
      show(
        'refused',
        `Do not trust this: ${code}: ${fault instanceof Error ? fault.message : fault}`,
      )
    },
  )
})

async function ask({ url = '', apiKey = '', policy = '', prompt = '' }): Promise<void> {
  const affidavit = await connect({ url, apiKey, policy: JSON.parse(policy) })
  const { baseURL, fetch } = affidavit
  // The key belongs to the user of this page. The page sends the key only to the gateway.
  const openai = new OpenAI({ baseURL, apiKey, fetch, dangerouslyAllowBrowser: true })
  show('checking', 'Checking…')
  const stream = await openai.chat.completions.create({
    model: 'demo/echo',
    messages: [{ role: 'user', content: prompt }],
    stream: true,
  })
  for await (const chunk of stream) answer.append(chunk.choices[0]?.delta.content ?? '')
  list(affidavit.proofs.latest?.checks ?? [])
}

function show(state: 'checking' | 'checked' | 'refused', words: string): void {
  answer.dataset.state = verdict.dataset.verdict = state
  verdict.textContent = words
}

type Check = { readonly outcome: string; readonly name: string; readonly detail: string }

/** The gateway's texts are inserted as plain text, never as HTML. */
function list(made: readonly Check[]): void {
  checks.replaceChildren(
    ...made.map(({ name, outcome, detail }) => {
      const row = document.createElement('tr')
      for (const text of [outcome, name, detail]) {
        const cell = document.createElement('td')
        cell.textContent = text
        row.append(cell)
      }
      return row
    }),
  )
}

function find<Type extends Element>(selector: string, type: new () => Type): Type {
  const found = document.querySelector(selector)
  if (found instanceof type) return found
  throw new Error(`expected ${selector} in the page`)
}
