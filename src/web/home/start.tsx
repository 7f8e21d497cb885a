import { showPage } from '../kit/frame.tsx'
import { HomePage } from './home-page.tsx'

showPage(<HomePage />)
