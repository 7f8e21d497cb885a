/** A source as the text of one script. It is bundled with its imports (src/web/bundle.ts). */
declare module '*.ts?text' {
  const text: string
  export default text
}
