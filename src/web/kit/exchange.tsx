import {
  linesOf,
  type ShownExchange,
  type ShownMessage,
} from '#attestation/report/shown-exchange.ts'

/**
 * Shows the question and the answer under headings of level `heading`, except if they are unknown.
 */
export function Exchange({
  exchange,
  heading = 'h2',
  whose = '',
}: {
  readonly exchange: ShownExchange
  /** After each heading: whose texts these are. */
  readonly whose?: string
  readonly heading?: 'h2' | 'h3'
}) {
  const { asked, said } = exchange
  if (asked === null && said === null) return null
  return (
    <div class="told">
      {asked !== null && (
        <ExchangePart title={`Asked${whose}`} heading={heading} messages={asked} />
      )}
      {said !== null && (
        <ExchangePart title={`Answered${whose}`} heading={heading} messages={said} />
      )}
    </div>
  )
}

function ExchangePart({
  title,
  heading: Heading,
  messages,
}: {
  readonly title: string
  readonly heading: 'h2' | 'h3'
  readonly messages: readonly ShownMessage[]
}) {
  return (
    <section aria-label={title}>
      <Heading>{title}</Heading>
      <Messages messages={messages} />
    </section>
  )
}

/** All texts are untrusted. */
export function Messages({ messages }: { readonly messages: readonly ShownMessage[] }) {
  return (
    <dl class="messages">
      {messages.map(linesOf).map(({ who, lines }, at) => (
        <div key={at}>
          <dt>
            <bdi>{who}</bdi>
          </dt>
          <dd>
            <bdi class="outside">{lines.join('\n')}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  )
}
