import { useState } from 'preact/hooks'
import { askOwnGateway } from '../kit/gateway.ts'
import { useLoaded } from '../kit/use-loaded.ts'
import { CodeBlock } from './code-block.tsx'
import type { Group } from './interface.ts'
import { LanguageTabs } from './language-tabs.tsx'
import { Prose } from './prose.tsx'
import type { Language } from './samples.ts'
import { writeOtherSamples, writeVerifiedSample } from './verified-samples.ts'
import { Words } from './words.tsx'

export function StartPage({ groups }: { readonly groups: readonly Group[] }) {
  const model = useLoaded(readModel, []).value ?? 'MODEL'
  return (
    <>
      <h1 id="call">The verified call</h1>
      <p class="lead">
        You call a model with any OpenAI client; an enclave passes the call on to the provider and
        signs question and answer. The answer comes with that proof, and anyone can check it years
        later without trust in this gateway.
      </p>
      <VerifiedCall model={model} />
      <p>
        You need an API key and, for Node and Python, the package <code>affidavit</code> and{' '}
        <code>policy.json</code>, which says which enclaves you accept. Take both from your vendor,
        never from this gateway.
      </p>
      <Check />
      <OtherCalls model={model} />
      <Words />
      <AllCalls groups={groups} />
    </>
  )
}

function VerifiedCall({ model }: { readonly model: string }) {
  const [language, onLanguage] = useState<Language>('curl')
  const call = { origin: location.origin, model }
  const { before, code, after } = writeVerifiedSample(language, call)
  return (
    <LanguageTabs id="verified-call" language={language} onLanguage={onLanguage}>
      {before !== null && (
        <>
          <p>
            <Prose text={before.what} />
          </p>
          <CodeBlock label={`the command before it, for ${language}`} text={before.command} />
        </>
      )}
      <CodeBlock label={`the verified call, for ${language}`} text={code} />
      <p>
        <Prose text={after} />
      </p>
    </LanguageTabs>
  )
}

/** The first model that answers with evidence, or null. */
async function readModel(signal: AbortSignal): Promise<string | null> {
  const { data } = await askOwnGateway<{ readonly data: readonly { readonly id: string }[] }>(
    '/v1/verified/models',
    { signal },
  )
  return data.find(({ id }) => SAFE_ID.test(id))?.id ?? null
}

/**
 * Providers choose ids. Other characters than these may be special in a shell or a programming
 * language.
 */
const SAFE_ID = /^[\w.:/@+-]{1,100}$/

function Check() {
  return (
    <>
      <h2 id="check">Check the answer</h2>
      <p>
        Client and proxy check each answer before your program gets it, and each stream before your
        program gets its end. Check the evidence again wherever you like, also on a machine without
        a network:
      </p>
      <dl class="ways">
        <div>
          <dt>In a browser</dt>
          <dd>
            Open <a href="/verify">Verify</a> and drop evidence there (an answer also needs its
            request, under “What you kept”). Give <code>policy.json</code> under “Your policy”. The
            page checks it without a server.
          </dd>
        </div>
        <div>
          <dt>On the command line</dt>
          <dd>
            A file of evidence, which the client, the proxy or the gateway wrote:
            <CodeBlock
              label="the command that checks a file"
              text="npx affidavit verify evidence.json --policy policy.json"
            />
            An answer of this gateway, by its <code>hash</code>:
            <CodeBlock
              label="the command that checks a hash"
              text={`AFFIDAVIT_URL=${location.origin} npx affidavit verify HASH --policy policy.json`}
            />
          </dd>
        </div>
        <div>
          <dt>Without a key</dt>
          <dd>
            The page <code>{location.origin}/c/HASH</code> shows which enclave signed the answer and
            when, without the question and the answer. Anyone can open it, unless this gateway gives
            evidence only with a key.
          </dd>
        </div>
      </dl>
    </>
  )
}

/** Shows the APIs that agents use besides chat, and where the proof of these calls is. */
function OtherCalls({ model }: { readonly model: string }) {
  return (
    <>
      <h2 id="agents">Responses and Messages</h2>
      <p>
        Agents call OpenAI’s Responses or Anthropic’s Messages, and each call has the same evidence:
        also its tools, their answers and the thinking are hashed. Give the SDK the base URL and
        your key. The proof is the member <code>affidavit</code> of the answer; in a stream, of its
        last event.
      </p>
      {writeOtherSamples(location.origin, model).map(({ name, baseUrl, method, code }) => (
        <section key={name} aria-label={name}>
          <p>
            {name}: base URL <code>{baseUrl}</code>, then <code>{method}</code>. With curl:
          </p>
          <CodeBlock label={`the call of ${name}`} text={code} />
        </section>
      ))}
    </>
  )
}

function AllCalls({ groups }: { readonly groups: readonly Group[] }) {
  return (
    <>
      <h2>All calls</h2>
      <p>
        The base URL for OpenAI clients is <code>{location.origin}/v1/verified</code> for answers
        with evidence, and <code>{location.origin}/v1</code> for answers without. Anthropic clients
        take <code>{location.origin}/v1/verified/anthropic</code>. A key is sent as{' '}
        <code>Authorization: Bearer …</code>. For machines there is{' '}
        <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1).
      </p>
      <ul class="plain groups">
        {groups.map(({ name, path, operations }) => (
          <li key={path}>
            <a href={path}>{name}</a>{' '}
            <span class="faint">
              {operations.length} {operations.length === 1 ? 'call' : 'calls'}
            </span>
          </li>
        ))}
      </ul>
    </>
  )
}
