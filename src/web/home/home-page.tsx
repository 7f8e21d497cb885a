import './home.css'
import { writeSample } from '../docs/samples.ts'
import { FaultNotice } from '../kit/notices.tsx'
import { CopyButton } from '../kit/values.tsx'
import { ServiceParts, useServiceState } from './service-state.tsx'

/** `/` for people who come with a browser: what this is, how it is, and how to begin. */
export function HomePage() {
  const { value, fault, reload } = useServiceState()
  return (
    <div class="home">
      <h1>Affidavit</h1>
      <p class="lead">
        An inference gateway whose answers come with evidence that anyone can check. A verifier in
        an enclave forwards the chat to the model provider, hashes and signs question and answer,
        and adds them to a log that is anchored on a blockchain. Anyone can make the check, without
        trust in the operator, offline and years later.
      </p>

      <h2>This service</h2>
      <ServiceParts state={value} isLost={fault !== null} />
      {fault !== null && value === null && <FaultNotice fault={fault} onRetry={reload} />}

      <h2>What would you like to do?</h2>
      <ul class="cards plain">
        {PLACES.map(({ path, name, what }) => (
          <li key={path} class="card">
            <h3>
              <a href={path}>{name}</a>
            </h3>
            <p>{what}</p>
          </li>
        ))}
      </ul>

      <h2>First steps</h2>
      <FirstSteps model={value?.models[0] ?? null} />
    </div>
  )
}

const PLACES = [
  {
    path: '/verify',
    name: 'Check evidence',
    what: 'Did you receive a bundle or a record? Your browser checks it, step by step, without a server.',
  },
  {
    path: '/log',
    name: 'Look into the logs',
    what: 'Every answer is a leaf. See the logs grow, and check that they only grow.',
  },
  {
    path: '/console',
    name: 'Try and operate',
    what: 'Verified chat, history, keys, limits and nodes, with an API key that stays in this tab.',
  },
  {
    path: '/docs',
    name: 'Read the interface',
    what: 'For any OpenAI client: each call has samples that you can copy and try.',
  },
] as const

/** `model`: one that answers with evidence now; null when that is not known. */
function FirstSteps({ model }: { readonly model: string | null }) {
  const ask = writeSample('curl', {
    url: `${location.origin}/v1/verified/chat/completions`,
    method: 'POST',
    hasKey: true,
    headers: {},
    body: JSON.stringify({
      model: model?.slice(0, MODEL_LENGTH_MAX) ?? 'MODEL',
      messages: [{ role: 'user', content: 'Hello' }],
    }),
    form: null,
  })
  return (
    <ol class="steps">
      <li>
        <p>
          <strong>Get an API key.</strong> The operator makes keys; <code>npm start</code> prints
          one.
        </p>
        <Command text="export AFFIDAVIT_API_KEY=…" what="the line for the key" />
      </li>
      <li>
        <p>
          <strong>Ask.</strong> You get the provider's answer together with its proof: hash,
          signature, attestation, receipt and log.
        </p>
        <Command text={ask} what="the call" />
      </li>
      <li>
        <p>
          <strong>Check.</strong> Take the answer's <code>hash</code>: its evidence stands at{' '}
          <code>/c/HASH</code> here, for everyone and without the content. The command line checks
          the complete evidence. Give your expectations of the enclave, and the answer is verified.
        </p>
        <Command
          text={`AFFIDAVIT_URL=${location.origin} npx affidavit verify HASH --release FILE --release-key KEY`}
          what="the command that checks"
        />
      </li>
    </ol>
  )
}

const MODEL_LENGTH_MAX = 100

function Command({ text, what }: { readonly text: string; readonly what: string }) {
  return (
    <div class="command">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keyboard. */}
      <pre tabIndex={0}>{text}</pre>
      <CopyButton text={text} what={what} />
    </div>
  )
}
